"""Every registered model is what its paper says, for every shape it takes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common.config import ModelSettings, SettingsError
from common.data import DataSpec
from common.data.kinds import Image, Table
from common.data.targets import ClassLabels, Numbers
from common.models import MODELS, SplitModel, build_model, count_parameters
from common.models.layers import normalisation
from tests.common.data.kinds.one_of_each import EXAMPLES
from tests.settings import ROOT, make_settings

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "cifar": (3, 32, 32)}
SMALLEST = {
    "mlp": (1, 1, 1),
    "fedgen-cnn": (1, 5, 5),
    "moon-cnn": (3, 16, 16),
    "resnet18": (3, 9, 9),
    "resnet50": (3, 9, 9),
}
"""The smallest square images that each model takes."""
PAIRS = [
    (name, kind)
    for name in sorted(MODELS)
    for kind in MODELS[name].kinds
    if kind != "tokens"  # test_text_models.py
]


def model_settings(name: str, **changes: Any) -> ModelSettings:
    run_config = {f"model.{key}": value for key, value in changes.items()}
    return make_settings(**{"model.name": name}, **run_config).model


def spec_of(shape: tuple[int, int, int], num_classes: int = 10) -> DataSpec:
    channels = shape[0]
    half = (0.5,) * channels
    return DataSpec("test-images", Image(shape, half, half), ClassLabels(num_classes))


def build(
    name: str,
    shape: tuple[int, int, int],
    num_classes: int = 10,
    seed: int = 0,
    **changes: Any,
) -> SplitModel:
    return build_model(model_settings(name, **changes), spec_of(shape, num_classes), seed)


def images(count: int, shape: tuple[int, int, int]) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "projection_dim", "expected"),
    [
        # (64*64+64) twice, 64*32+32, 32*10+10
        ("mlp", SHAPES["digits"], 10, 0, 4160 + 4160 + 2080 + 330),
        # 1*9*6+6, BN 2*6, 6*9*16+16, BN 2*16, 784*32+32, 32*10+10
        ("fedgen-cnn", SHAPES["mnist"], 10, 0, 60 + 12 + 880 + 32 + 25120 + 330),
        # 8x8 shrinks to 2x2: 16*2*2*32+32 in place of 784*32+32
        ("fedgen-cnn", SHAPES["digits"], 10, 0, 60 + 12 + 880 + 32 + 2080 + 330),
        # 3*25*6+6, 6*25*16+16, 400*120+120, 120*84+84, head 84*84+84 and 84*256+256, 256*10+10
        ("moon-cnn", SHAPES["cifar"], 10, 256, 456 + 2416 + 48120 + 10164 + 7140 + 21760 + 2570),
        # The same without a head: 84*10+10
        ("moon-cnn", SHAPES["cifar"], 10, 0, 456 + 2416 + 48120 + 10164 + 850),
        # 1*25*6+6, 6*25*16+16, 16*4*4*120+120, 120*84+84, 84*10+10
        ("moon-cnn", SHAPES["mnist"], 10, 0, 156 + 2416 + 30840 + 10164 + 850),
        # torchvision's 11,689,512 with stem 3*9*64 for 3*49*64 and 512*10+10 for 512*1000+1000
        ("resnet18", SHAPES["cifar"], 10, 0, 11_689_512 - 9408 + 1728 - 513_000 + 5130),
        # torchvision's 25,557,032, likewise, 2048*100+100 for 2048*1000+1000
        ("resnet50", SHAPES["cifar"], 100, 0, 25_557_032 - 9408 + 1728 - 2_049_000 + 204_900),
    ],
)
def test_models_have_the_parameters_of_their_papers(
    name: str, shape: tuple[int, int, int], num_classes: int, projection_dim: int, expected: int
) -> None:
    model = build(name, shape, num_classes, **{"projection-dim": projection_dim})
    assert count_parameters(model) == expected


@pytest.mark.parametrize(
    ("name", "width"),
    [("mlp", 32), ("fedgen-cnn", 32), ("moon-cnn", 84), ("resnet18", 512), ("resnet50", 2048)],
)
@pytest.mark.parametrize("projection_dim", [0, 5])
def test_encoder_and_predictor_meet_in_z(name: str, width: int, projection_dim: int) -> None:
    model = build(name, (3, 20, 17), 7, **{"projection-dim": projection_dim}).eval()
    z = model.encoder(images(2, (3, 20, 17)))
    assert z.shape == (2, projection_dim or width)
    assert model.latent_dim == (projection_dim or width)
    assert model.predictor(z).shape == (2, 7)
    assert torch.equal(model(images(2, (3, 20, 17))), model.predictor(z))
    assert isinstance(model.predictor, nn.Linear)


@pytest.mark.parametrize(
    ("name", "projection_dim", "layers", "latent_dim"),
    [
        ("mlp", 0, 2, 64),
        ("mlp", 0, 3, 64),  # with the ReLU between
        ("fedgen-cnn", 0, 2, 16 * 4 * 4),  # as latent_layer_idx -2 of FedGen's code
        ("moon-cnn", 0, 2, 120),
        ("moon-cnn", 256, 2, 84),
        ("moon-cnn", 256, 3, 84),
        ("resnet18", 256, 2, 512),
    ],
)
def test_encoder_and_predictor_may_meet_earlier_in_the_same_model(
    name: str, projection_dim: int, layers: int, latent_dim: int
) -> None:
    shape, head = (3, 16, 16), {"projection-dim": projection_dim}
    whole = build(name, shape, 7, **head).eval()
    model = build(name, shape, 7, **head, **{"predictor-layers": layers}).eval()
    x = images(3, shape)
    assert torch.equal(model(x), whole(x))
    assert model.encoder(x).shape == (3, latent_dim)
    assert model.latent_dim == latent_dim
    linear = [layer for layer in model.predictor.modules() if isinstance(layer, nn.Linear)]
    assert len(linear) == layers


@pytest.mark.parametrize(("name", "layers"), [("resnet18", 2), ("fedgen-cnn", 3)])
def test_a_predictor_of_more_layers_than_the_model_ends_in_is_refused(
    name: str, layers: int
) -> None:
    with pytest.raises(SettingsError, match=rf"ends in {layers - 1} linear layers.*projection"):
        build(name, (3, 16, 16), 7, **{"predictor-layers": layers})


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_parameter_gets_a_gradient_also_from_a_batch_of_one(
    name: str, kind: str, norm: str
) -> None:
    other = DataSpec("test-data", EXAMPLES[kind], ClassLabels(3))
    spec = spec_of(SMALLEST[name], 3) if kind == "image" else other
    model = build_model(model_settings(name, norm=norm, **{"projection-dim": 4}), spec, 0)
    x = torch.randn(1, *spec.kind.shape, generator=torch.Generator().manual_seed(7))
    loss = F.cross_entropy(model(x), torch.tensor([2]))
    loss.backward()
    assert torch.isfinite(loss)
    assert [key for key, value in model.named_parameters() if value.grad is None] == []
    assert any(bool(value.grad.any()) for value in model.encoder.parameters())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("fedgen-cnn", (1, 4, 4)),
        ("moon-cnn", (1, 8, 8)),
        ("moon-cnn", (3, 32, 15)),
        ("resnet18", (1, 8, 8)),
        ("resnet50", (3, 8, 1)),
    ],
)
def test_images_that_are_too_small_are_refused(name: str, shape: tuple[int, int, int]) -> None:
    size = "x".join(map(str, shape))
    with pytest.raises(SettingsError, match=rf"{name}.*{size} images.*test-images.*it needs"):
        build(name, shape)


def test_group_norm_takes_images_that_shrink_to_a_pixel() -> None:
    model = build("resnet18", SHAPES["digits"], norm="group")
    assert model(images(1, SHAPES["digits"])).shape == (1, 10)


@pytest.mark.parametrize("name", ["mlp", "fedgen-cnn", "moon-cnn", "resnet18"])
def test_weights_depend_on_the_seed_only(name: str) -> None:
    torch.manual_seed(1)
    first = build(name, SHAPES["cifar"], seed=3).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = build(name, SHAPES["cifar"], seed=3).state_dict()
    other = build(name, SHAPES["cifar"], seed=4).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["predictor.weight"], other["predictor.weight"])


def test_moon_cnn_computes_what_the_published_code_does() -> None:
    model = build("moon-cnn", SHAPES["cifar"], **{"projection-dim": 256})
    conv1_w, conv1_b, conv2_w, conv2_b, *linear = list(model.parameters())
    x = images(3, SHAPES["cifar"])
    h = F.max_pool2d(F.relu(F.conv2d(x, conv1_w, conv1_b)), 2, 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, conv2_w, conv2_b)), 2, 2).reshape(3, 16 * 5 * 5)
    fc1_w, fc1_b, fc2_w, fc2_b, l1_w, l1_b, l2_w, l2_b, l3_w, l3_b = linear
    h = F.relu(F.linear(F.relu(F.linear(h, fc1_w, fc1_b)), fc2_w, fc2_b))
    z = F.linear(F.relu(F.linear(h, l1_w, l1_b)), l2_w, l2_b)
    torch.testing.assert_close(model.encoder(x), z)
    torch.testing.assert_close(model(x), F.linear(z, l3_w, l3_b))


def test_fedgen_cnn_computes_what_the_published_code_does() -> None:
    model = build("fedgen-cnn", SHAPES["mnist"])
    conv1_w, conv1_b, norm1_w, norm1_b, conv2_w, conv2_b, norm2_w, norm2_b, *linear = list(
        model.parameters()
    )
    x = images(3, SHAPES["mnist"])

    def batch_norm(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.batch_norm(h, None, None, weight, bias, training=True)

    h = F.conv2d(x, conv1_w, conv1_b, stride=2, padding=1)
    h = F.relu(batch_norm(h, norm1_w, norm1_b))
    h = F.conv2d(h, conv2_w, conv2_b, stride=2, padding=1)
    h = F.relu(batch_norm(h, norm2_w, norm2_b)).reshape(3, 784)
    z = F.linear(h, linear[0], linear[1])
    assert (z < 0).any(), "z has no activation"
    torch.testing.assert_close(model.encoder(x), z)
    torch.testing.assert_close(model(x), F.linear(z, linear[2], linear[3]))


def test_resnets_keep_the_resolution_of_small_images_in_the_first_stage() -> None:
    features = build("resnet18", SHAPES["cifar"]).encoder.features
    x = images(1, SHAPES["cifar"])
    first = features.layer1(features.maxpool(features.relu(features.bn1(features.conv1(x)))))
    assert first.shape == (1, 64, 32, 32)
    assert features.layer4(features.layer3(features.layer2(first))).shape == (1, 512, 4, 4)


@pytest.mark.parametrize(
    ("channels", "groups"), [(6, 1), (8, 1), (12, 1), (16, 2), (64, 8), (2048, 256)]
)
def test_group_norm_has_eight_channels_a_group_or_one_group(channels: int, groups: int) -> None:
    norm = normalisation("group", channels)
    assert isinstance(norm, nn.GroupNorm)
    assert (norm.num_groups, norm.num_channels) == (groups, channels)


@pytest.mark.parametrize("name", ["fedgen-cnn", "resnet18"])
def test_the_norm_setting_decides_whether_there_are_running_statistics(name: str) -> None:
    kinds = {
        norm: {type(part) for part in build(name, SHAPES["mnist"], norm=norm).modules()}
        for norm in ("batch", "group")
    }
    assert nn.BatchNorm2d in kinds["batch"]
    assert nn.GroupNorm not in kinds["batch"]
    assert nn.GroupNorm in kinds["group"]
    assert nn.BatchNorm2d not in kinds["group"]
    assert build(name, SHAPES["mnist"], norm="group").buffer_names() == set()
    assert build(name, SHAPES["mnist"]).buffer_names() != set()


def test_the_registry_does_not_import_torchvision() -> None:
    code = "import sys, common.models; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_model_takes_the_kinds_of_its_line_and_refuses_others() -> None:
    table = DataSpec("npz", Table(5), Numbers())
    model = build_model(model_settings("mlp"), table, 0)
    assert model(torch.zeros(3, 5)).shape == (3, 1)
    for name in ("resnet18", "lstm", "cnn1d"):
        (kind,) = MODELS[name].kinds
        refusal = f"'{name}' takes data of kind {kind}, .*use mlp or tab-transformer"
        with pytest.raises(SettingsError, match=refusal):
            build_model(model_settings(name), table, 0)


def test_every_model_of_images_is_looked_at() -> None:
    assert {*SMALLEST} == {name for name, entry in MODELS.items() if "image" in entry.kinds}


def test_the_settings_know_every_model_and_no_other() -> None:
    assert set(get_args(ModelSettings.model_fields["name"].annotation)) == set(MODELS)
