"""Frozen copies, and statistics told from parameters."""

from __future__ import annotations

import torch
from torch import nn

from common.models.split import SplitModel, frozen_copy


def tiny(weight: float) -> SplitModel:
    encoder = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    model = SplitModel(encoder, nn.Linear(1, 2), latent_dim=1, outputs=2)
    nn.init.constant_(encoder[0].weight, weight)
    return model


def test_statistics_are_told_from_parameters() -> None:
    assert tiny(1).buffer_names() == {
        "encoder.1.running_mean",
        "encoder.1.running_var",
        "encoder.1.num_batches_tracked",
    }


def test_a_frozen_copy_has_the_given_weights_and_leaves_the_model_alone() -> None:
    model, other = tiny(1.0), tiny(3.0)
    frozen = frozen_copy(model, other.state_dict())
    with torch.no_grad():
        other.encoder[0].weight.zero_()
        model.encoder[0].weight.fill_(2.0)
    assert frozen.encoder[0].weight.item() == 3.0
    assert model.encoder[0].weight.item() == 2.0
    assert not frozen.training
    assert model.training
    assert not any(value.requires_grad for value in frozen.parameters())
    assert all(value.requires_grad for value in model.parameters())
