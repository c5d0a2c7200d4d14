"""What a run knows, written to the trackers that people use, beside the rounds."""
