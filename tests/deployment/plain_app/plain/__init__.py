"""An app of the size of Flower's PyTorch quickstart, to compare with."""
