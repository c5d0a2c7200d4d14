"""A Hugging Face encoder of some thousand numbers, made on the spot."""

from __future__ import annotations

from pathlib import Path

from common.models.hf_encoder import folder_sha256


def write_encoder(models: Path, layers: int = 2, seed: int = 0, vocabulary: int = 60) -> str:
    """Write ``tiny``, a BERT with dropout of its usual 0.1; return the folder's SHA-256."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(models / "tiny")
    return folder_sha256(models / "tiny")
