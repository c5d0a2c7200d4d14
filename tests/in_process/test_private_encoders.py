"""Only the predictor is shared: what stays with a client, on the wire and on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict

from client_app.app import app
from common import records
from common.config import ModelSettings, SettingsError
from common.data import data_spec
from common.models import SavedModelError, build_model, load_facts, load_model
from common.storage import read_tensors
from server_app.app import serve
from tests.in_process.grid import FakeClock, InProcessGrid, run_in_process
from tests.in_process.sites import SETTINGS, write_npz
from tests.settings import make_run_config, make_settings

PREDICTOR = {"predictor.weight", "predictor.bias"}
PRIVATE: dict[str, Any] = {
    "algorithm": "fedgen",
    "num-rounds": 2,
    "train.local-epochs": 1,
    "data.fraction": 0.3,
    "experiment": "exp",
    "model.name": "fedgen-cnn",
    "model.sharing": "predictor",
    "fedgen.server-steps": 3,
}
SITES = {"algorithm": "fedgen", "experiment": "exp", "model.sharing": "predictor"}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def kept(tmp_path: Path, client: str, server_round: int) -> dict[str, torch.Tensor]:
    """Return what a client kept of a round."""
    state = tmp_path / "moonflower" / "state" / "exp" / client
    return read_tensors(state / f"round-{server_round:06d}.safetensors")[0]


def strings_of_bytes(content: RecordDict) -> Iterator[bytes]:
    """Yield all that a message carries as raw numbers."""
    for record in content.values():
        for value in record.values():
            if isinstance(record, ArrayRecord):
                yield value.numpy().tobytes()
            elif isinstance(value, bytes):
                yield value


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedgen"])
def test_nothing_of_an_encoder_is_in_any_message_either_way(tmp_path: Path, algorithm: str) -> None:
    seen: list[RecordDict] = []

    def listening(message: Message, context: Context) -> Message:
        seen.append(message.content)
        reply = app(message, context)
        seen.append(reply.content)
        return reply

    overrides = {**PRIVATE, "algorithm": algorithm}
    folder = run_in_process(overrides, 2, tmp_path, client_app=listening)
    settings = make_settings(**overrides)
    initial = build_model(settings.model, data_spec(settings.data), settings.seed).state_dict()
    models = [initial, *(kept(tmp_path, f"client-000{n}", r) for n in (0, 1) for r in (1, 2))]
    encoders = {
        tensor.numpy().tobytes()
        for model in models
        for name, tensor in model.items()
        # Smaller ones, such as zeros and counts of steps, may be anywhere by chance.
        if name.startswith("encoder.") and tensor.numel() >= 6 and tensor.unique().numel() > 1
    }
    assert len(encoders) > len(models)
    arrays = [content[records.ARRAYS] for content in seen if records.ARRAYS in content]
    # 2 clients and 2 rounds: an instruction and a reply of training, an instruction of evaluation.
    assert len(arrays) == 2 * 2 * 3
    assert all(set(each) == PREDICTOR for each in arrays)
    sent = [blob for content in seen for blob in strings_of_bytes(content)]
    assert not [blob for blob in sent for own in encoders if own in blob]
    latent, classes = 32, 10
    # From two clients, 4 bytes a float, and NumPy's 128 bytes before each of two arrays.
    received = 2 * (4 * (latent + 1) * classes + 2 * 128)
    measured = sum(
        len(packed)
        for content in seen
        if records.SUMS in content and content[records.REPLY][records.ROUND] == 1
        for packed in content[records.SUMS].values()
    )
    assert lines_of(folder)[0]["bytes"]["received"] == received + measured


def test_an_encoder_goes_on_from_the_clients_own_disk(tmp_path: Path) -> None:
    overrides = {**PRIVATE, "algorithm": "fedavg", "train.local-steps": 3}
    run_in_process(overrides, 2, tmp_path)
    steps = "encoder.features.1.num_batches_tracked"
    # 3 steps a round, counted on from the client's own number.
    assert [kept(tmp_path, "client-0000", n)[steps].item() for n in (1, 2)] == [3, 6]
    one, other = (kept(tmp_path, name, 2) for name in ("client-0000", "client-0001"))
    assert not torch.equal(one["encoder.features.0.weight"], other["encoder.features.0.weight"])


def test_clients_of_one_model_begin_with_the_same_encoder(tmp_path: Path) -> None:
    tiny = {"train.learning-rate": 1e-12, "num-rounds": 1, "train.weight-decay": 0.0}
    run_in_process({**PRIVATE, **tiny}, 2, tmp_path)
    one, other = (kept(tmp_path, name, 1) for name in ("client-0000", "client-0001"))
    weight = "encoder.features.0.weight"
    torch.testing.assert_close(one[weight], other[weight], rtol=0, atol=1e-6)


def test_clients_evaluate_with_their_own_encoder_and_the_global_predictor(tmp_path: Path) -> None:
    from common.data import load_client_data
    from common.node import Folders, Node
    from common.tasks import build_task

    folder = run_in_process(PRIVATE, 2, tmp_path)
    last = lines_of(folder)[-1]
    assert last["global"] is None
    settings = make_settings(**PRIVATE)
    home = tmp_path / "moonflower"
    folders = Folders(home / "data", home / "state", home / "output")
    predictor = load_model(folder / "final", allow_private_parts=True).predictor
    for number in (0, 1):
        name = f"client-000{number}"
        model = build_model(settings.model, data_spec(settings.data), 0)
        model.load_state_dict(kept(tmp_path, name, 2))
        model.predictor.load_state_dict(predictor.state_dict())
        data = load_client_data(settings, Node(name, number, 2, torch.device("cpu"), folders))
        task = build_task(settings)
        scores = task.score(task.measure(model, data.evaluation)).values
        assert last["clients"]["per-client"][name] == scores["accuracy"]


def test_the_saved_model_is_a_predictor_and_says_so(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = run_in_process(PRIVATE, 2, tmp_path)
    assert load_facts(folder / "best")["criterion"] == "mean client accuracy"
    for name in ("best", "final", "checkpoints/round-000002"):
        assert set(load_file(folder / name / "model.safetensors")) == PREDICTOR
    with pytest.raises(SavedModelError, match=r"a predictor only.*allow_private_parts=True"):
        load_model(folder / "final")


class TestOtherEncoders:
    """Nodes that chose a model of their own."""

    def run(self, tmp_path: Path, chosen: str, fake: FakeClock, **overrides: Any) -> Path:
        """Run with three sites, of which the last chose another model."""
        run_config = make_run_config(**{**SETTINGS, **SITES, **overrides})
        configs: list[dict[str, Any]] = [
            {"client-name": name, "data-dir": str(write_npz(tmp_path / name, range(10)))}
            for name in ("clinic-a", "clinic-b", "clinic-c")
        ]
        configs[2]["model-name"] = chosen
        grid = InProcessGrid(app, configs, run_config, (), fake.clock())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MOONFLOWER_HOME", str(tmp_path / "moonflower"))
            return serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())

    def test_train_with_the_others_when_the_latent_size_agrees(
        self, tmp_path: Path, fake: FakeClock
    ) -> None:
        folder = self.run(tmp_path, "fedgen-cnn", fake, **{"model.projection-dim": 16})
        assert lines_of(folder)[-1]["participants"] == ["clinic-a", "clinic-b", "clinic-c"]
        assert len(lines_of(folder)[-1]["clients"]["per-client"]) == 3
        names = [set(kept(tmp_path, f"clinic-{n}", 2)) for n in "abc"]
        assert names[0] == names[1] != names[2]
        assert all(each >= PREDICTOR for each in names)

    @pytest.mark.parametrize(
        ("chosen", "overrides", "reason"),
        [
            (
                "resnet18",
                {"model.norm": "group"},
                "latent size 512, but the shared predictor, of 'mlp', reads 32",
            ),
            ("vgg", {}, "model-name is 'vgg', which is unknown: allowed are "),
            ("moon-cnn", {}, "16x16"),
            ("fedgen-cnn", {"model.sharing": "all"}, "this run shares the whole model, 'mlp'"),
        ],
    )
    def test_are_left_out_with_the_reason_when_they_do_not_fit(
        self,
        tmp_path: Path,
        fake: FakeClock,
        capsys: pytest.CaptureFixture[str],
        chosen: str,
        overrides: dict[str, Any],
        reason: str,
    ) -> None:
        folder = self.run(tmp_path, chosen, fake, **overrides)
        assert lines_of(folder)[-1]["participants"] == ["clinic-a", "clinic-b"]
        log = capsys.readouterr().err
        assert "1 of 3 clients can't take part" in log
        assert reason in log


def test_moon_is_refused_without_a_global_encoder() -> None:
    with pytest.raises(SettingsError, match="can't go with algorithm 'moon'"):
        make_settings(**{"algorithm": "fedprox+moon", "model.sharing": "predictor"})


def test_official_evaluation_needs_statistics_that_are_the_clients_own(
    tmp_path: Path, fake: FakeClock
) -> None:
    official = {**PRIVATE, "data.client-test": "official", "num-rounds": 1}
    with pytest.raises(SettingsError, match=r"model\.batch-norm-buffers='averaged'"):
        run_in_process({**official, "model.sharing": "all"}, 2, tmp_path / "averaged")
    for name, change in {
        "private": {},
        "local": {"model.sharing": "all", "model.batch-norm-buffers": "local"},
        "group": {"model.sharing": "all", "model.norm": "group"},
    }.items():
        folder = run_in_process({**official, **change}, 2, tmp_path / name)
        assert lines_of(folder)[0]["clients"]["examples"] > 0


@pytest.mark.parametrize(
    ("changes", "private"),
    [
        ({"sharing": "all", "batch_norm_buffers": "averaged"}, set()),
        (
            {"sharing": "all", "batch_norm_buffers": "local"},
            {
                f"encoder.features.{layer}.{name}"
                for layer in (1, 4)
                for name in ("running_mean", "running_var", "num_batches_tracked")
            },
        ),
    ],
    ids=["all", "local buffers"],
)
def test_what_travels_is_all_but_what_is_private(
    changes: dict[str, Any], private: set[str]
) -> None:
    settings = make_settings(**PRIVATE)
    chosen: ModelSettings = settings.model.model_copy(update=changes)
    model = build_model(chosen, data_spec(settings.data), 0)
    assert set(model.state_dict()) - set(records.shared_state(model, chosen)) == private
