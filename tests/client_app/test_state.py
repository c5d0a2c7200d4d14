"""What a client keeps on disk survives crashes, damage and full disks."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from client_app.state import LOCAL_MODEL, ClientState, StateError
from common.config import SettingsError


def model(value: float) -> dict[str, Tensor]:
    return {"weight": torch.full((2,), value), "steps": torch.tensor(int(value))}


def values(found: list[dict[str, Tensor]]) -> list[float]:
    return [state["weight"][0].item() for state in found]


def state_of(tmp_path: Path, *rounds: int) -> ClientState:
    state = ClientState(tmp_path / "state", "trial", "site-a")
    for server_round in rounds:
        save(state, server_round, server_round)
    return state


def save(state: ClientState, server_round: int, value: float, rounds: int = 99) -> None:
    state.keep(LOCAL_MODEL, server_round, model(value), rounds)


def found(state: ClientState, before: int, count: int = 1) -> list[float]:
    return values(state.kept(LOCAL_MODEL, before, count))


def path(state: ClientState, server_round: int) -> Path:
    return state.folder / f"round-{server_round:06d}.safetensors"


def files(state: ClientState) -> list[str]:
    return sorted(path.name for path in state.folder.iterdir())


def damage(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))


def test_a_round_has_a_file_of_its_own_below_experiment_and_client(tmp_path: Path) -> None:
    state_of(tmp_path, 12)
    assert (tmp_path / "state/trial/site-a/round-000012.safetensors").is_file()


@pytest.mark.parametrize("name", ["..", "a/b", "", "ä", "a" * 65])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="experiment"):
        ClientState(tmp_path, name, "site-a")
    with pytest.raises(SettingsError, match="client name"):
        ClientState(tmp_path, "trial", name)


def test_a_client_without_state_has_nothing_and_creates_nothing(tmp_path: Path) -> None:
    assert found(state_of(tmp_path), 5, 3) == []
    assert list(tmp_path.iterdir()) == []


def test_the_newest_come_first_and_at_most_so_many(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1, 3, 7)
    assert found(state, 8, 2) == [7, 3]
    assert found(state, 8, 9) == [7, 3, 1]
    assert found(state, 8, 0) == []


def test_bits_and_dtypes_come_back(tmp_path: Path) -> None:
    (kept,) = state_of(tmp_path, 3).kept(LOCAL_MODEL, 4)
    assert torch.equal(kept["weight"], torch.tensor([3.0, 3.0]))
    assert kept["steps"].dtype == torch.int64
    assert kept["steps"].item() == 3


def test_a_round_that_is_run_again_does_not_see_its_own_earlier_try(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1, 2)
    assert found(state, 2, 1) == [1]
    save(state, 2, 22)
    assert found(state, 2, 1) == [1]
    assert found(state, 3, 1) == [22]


def test_rounds_above_a_million_are_newer(tmp_path: Path) -> None:
    assert found(state_of(tmp_path, 999_999, 1_000_000), 1_000_001, 1) == [1_000_000]


def test_saving_an_earlier_round_drops_the_later_ones_of_an_abandoned_run(tmp_path: Path) -> None:
    state = state_of(tmp_path, 5, 11, 12)
    save(state, 6, 66, rounds=1)
    assert found(state, 7, 5) == [66, 5]


def test_a_damaged_file_is_set_aside_with_a_warning_and_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = state_of(tmp_path, 1, 2, 3)
    damage(path(state, 3))
    with caplog.at_level(logging.WARNING, "moonflower"):
        assert found(state, 4, 1) == [2]
    assert files(state) == [
        "round-000001.safetensors",
        "round-000002.safetensors",
        "round-000003.safetensors.damaged-1",
    ]
    (record,) = caplog.records
    assert str(path(state, 3)) in record.getMessage()
    assert "damaged-1" in record.getMessage()


def test_a_damaged_file_on_a_read_only_disk_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = state_of(tmp_path, 1, 2)
    damage(path(state, 2))
    monkeypatch.setattr(Path, "rename", failing(errno.EROFS))
    assert found(state, 3, 1) == [1]
    assert "could not be set aside" in caplog.text


def test_a_file_of_unknown_name_is_left_alone(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1, 2, 3)
    (state.folder / "round-000009.safetensors.damaged-1").touch()
    (state.folder / "notes.txt").touch()
    save(state, 4, 4, rounds=1)
    assert found(state, 99, 9) == [4, 3, 2]
    assert {"notes.txt", "round-000009.safetensors.damaged-1"} <= set(files(state))


def failing(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [("fsync", errno.ENOSPC, "No space left"), ("replace", errno.EROFS, "Read-only file system")],
)
def test_a_full_or_read_only_disk_is_explained_and_old_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, reason: str
) -> None:
    state = state_of(tmp_path, 1, 2)
    with monkeypatch.context() as broken:
        broken.setattr(os, call, failing(code))
        with pytest.raises(StateError, match=reason) as caught:
            save(state, 2, 22)
    assert str(path(state, 2)) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert found(state, 9, 9) == [2, 1]
    assert files(state) == ["round-000001.safetensors", "round-000002.safetensors"]


def test_a_file_that_can_not_be_read_is_explained_and_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_of(tmp_path, 1)
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EIO))
    with pytest.raises(StateError, match="Input/output error"):
        state.kept(LOCAL_MODEL, 2, 1)
    assert files(state) == ["round-000001.safetensors"]


HOLD = """
import sys, time
from filelock import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_kept_out_until_the_first_one_dies(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1)
    lock = str(state.folder / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(StateError, match=r"held by another process after 0\.1 s.*client-name"),
            state.locked(0.1),
        ):
            pass
        other.kill()
        other.wait()
        with state.locked(5):
            save(state, 2, 2)
    assert found(state, 3, 1) == [2]


def test_the_lock_is_free_again_after_an_error_in_the_block(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    with pytest.raises(KeyError), state.locked(0.1):
        raise KeyError
    with state.locked(0.1):
        save(state, 1, 1)
    assert found(state, 2, 1) == [1]


def test_two_objects_of_one_client_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    with (
        state_of(tmp_path).locked(0.1),
        pytest.raises(StateError, match="held by another"),
        state_of(tmp_path).locked(0.1),
    ):
        pass


def test_two_clients_do_not_wait_for_each_other(tmp_path: Path) -> None:
    first, second = (ClientState(tmp_path, "trial", name) for name in ("site-a", "site-b"))
    with first.locked(0.1), second.locked(0.1):
        save(second, 1, 1)
    assert found(first, 2, 1) == []


def test_taking_the_lock_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1)
    (state.folder / ".round-000002.safetensors.0badcafe.unfinished").write_bytes(b"half")
    with state.locked(1):
        pass
    assert files(state) == [".lock", "round-000001.safetensors"]


def test_a_folder_that_can_not_be_created_is_explained(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    state = ClientState(tmp_path / "state", "trial", "site-a")
    with pytest.raises(StateError, match="can't be locked"), state.locked(0.1):
        pass
    with pytest.raises(StateError, match="can't be written"):
        save(state, 1, 1)


def of_experiment(tmp_path: Path, experiment_id: str) -> ClientState:
    return ClientState(tmp_path / "state", "trial", "site-a", experiment_id)


def test_state_of_an_earlier_experiment_of_that_name_is_passed_over_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="moonflower")
    for server_round in (1, 2):
        save(of_experiment(tmp_path, "old"), server_round, server_round)
    new = of_experiment(tmp_path, "new")
    assert found(new, 3, 2) == []
    assert any("earlier experiment of this name" in line for line in caplog.messages)
    assert found(of_experiment(tmp_path, "old"), 3, 2) == [2, 1], "still there"


def test_saving_removes_what_an_earlier_experiment_left(tmp_path: Path) -> None:
    for server_round in (1, 2, 7):
        save(of_experiment(tmp_path, "old"), server_round, server_round)
    new = of_experiment(tmp_path, "new")
    save(new, 3, 3.0)
    assert files(new) == ["round-000003.safetensors"]


def test_a_file_of_another_model_is_refused_with_what_differs(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1)
    state.kept(LOCAL_MODEL, 2, 1, like=model(5.0))  # other values are fine
    larger = {**model(1.0), "weight": torch.zeros(3)}
    with pytest.raises(StateError, match=r"weight is \[2\], the model has \[3\]") as caught:
        state.kept(LOCAL_MODEL, 2, 1, like=larger)
    assert str(path(state, 1)) in str(caught.value)
    with pytest.raises(StateError, match=r"bias is missing, the model has \[1\]"):
        state.kept(LOCAL_MODEL, 2, 1, like={**model(1.0), "bias": torch.zeros(1)})
    assert found(state, 2, 1) == [1], "the file is left alone"


def test_a_part_is_kept_apart_and_the_clients_lock_cleans_it_too(tmp_path: Path) -> None:
    state = state_of(tmp_path, 1)
    state.keep("residual", 2, model(20.0))
    part = state.folder / "residual"
    assert found(state, 9, 9) == [1]
    assert values(state.kept("residual", 9, 9)) == [20]
    unfinished = part / ".round-000003.safetensors.0.unfinished"
    unfinished.touch()
    with state.locked(1):
        assert [each.name for each in part.iterdir()] == ["round-000002.safetensors"]


def test_a_part_whose_name_could_leave_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="part"):
        state_of(tmp_path).keep("..", 1, model(1.0))
    with pytest.raises(SettingsError, match="part"):
        state_of(tmp_path).kept("..", 1)


def test_what_is_kept_of_a_part_comes_back_in_a_later_round_and_not_in_its_own(
    tmp_path: Path,
) -> None:
    state = state_of(tmp_path)
    state.keep("own", 1, model(1.0))
    state.keep("own", 2, model(2.0))
    assert values(state.kept("own", 2)) == [1]
    assert values(state.kept("own", 3)) == [2]
    assert values(state.kept("own", 3, count=5)) == [2, 1]
    assert state.kept("another", 3) == []


def test_the_local_model_lies_in_the_clients_own_folder(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.keep(LOCAL_MODEL, 3, model(3.0))
    assert path(state, 3).is_file()
    assert values(state.kept(LOCAL_MODEL, 4)) == [3]


def test_as_many_rounds_more_are_kept_as_the_server_may_go_back(tmp_path: Path) -> None:
    state = ClientState(tmp_path, "trial", "site-a", checkpoints=3)
    for server_round in range(1, 9):
        state.keep("own", server_round, model(server_round), rounds=2)
    assert values(state.kept("own", 99, count=99)) == [8, 7, 6, 5, 4]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_kept_and_the_round_before_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: float
) -> None:
    state = state_of(tmp_path)
    state.keep("own", 1, model(1.0))
    state.keep("own", 2, {**model(2.0), "weight": torch.tensor([1.0, value])})
    assert values(state.kept("own", 3)) == [1]
    assert "round 2: the own to be kept holds NaN or infinity" in caplog.text
