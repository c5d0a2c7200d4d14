"""What belongs to a machine: folders, device, name. From node config, else the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from common.config import SettingsError, check_name

HOME_VARIABLE = "MOONFLOWER_HOME"
DEVICE_VARIABLE = "MOONFLOWER_DEVICE"


def expanded(path: str) -> Path:
    """Return ``path`` as an absolute one, ``~`` replaced.

    Raises
    ------
    SettingsError
        There is no home folder to replace it by.
    """
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise SettingsError(
            f"the folder {path!r} can't be found: {error} Give a path without '~', or set HOME or "
            f"{HOME_VARIABLE}"
        ) from None


def home_folder() -> Path:
    """Return ``MOONFLOWER_HOME``, or ``~/.moonflower``."""
    return expanded(os.environ.get(HOME_VARIABLE) or "~/.moonflower")


@dataclass(frozen=True)
class Folders:
    """Where this machine keeps data, client state and results.

    Node config (``data-dir``, ``state-dir``) comes first, then the environment
    (``MOONFLOWER_DATA_DIR``, ``MOONFLOWER_STATE_DIR``, ``MOONFLOWER_OUTPUT_DIR``), then
    ``data``, ``state`` and ``output`` below ``MOONFLOWER_HOME`` (``~/.moonflower``).
    """

    data: Path
    state: Path
    output: Path

    @property
    def prepared(self) -> Path:
        """Where decoded arrays and partitions are cached; safe to delete."""
        return self.state / "prepared"

    @classmethod
    def find(cls, node_config: Mapping[str, object] | None = None) -> Folders:
        """Return the folders of this machine; nothing is created.

        Raises
        ------
        SettingsError
            A folder lies in a home that can't be found.
        """
        config = node_config or {}

        def folder(name: str) -> Path:
            chosen = config.get(f"{name}-dir") or os.environ.get(f"MOONFLOWER_{name.upper()}_DIR")
            return expanded(str(chosen)) if chosen else home_folder() / name

        return cls(data=folder("data"), state=folder("state"), output=folder("output"))


@dataclass(frozen=True)
class Node:
    """This client: its name, its share of a partitioned data set, its machine.

    Attributes
    ----------
    name : str
        ``client-name`` of the node config, else ``client-<partition-id>`` padded with zeros.
    partition_id, num_partitions : int or None
        The share of a data set, as a simulated client has one. A site with data of its own has
        not both.
    device : torch.device
        ``device`` of the node config or ``MOONFLOWER_DEVICE``, else CUDA where there is one.
    folders : Folders
    model_name : str
        ``model-name`` of the node config or ``MOONFLOWER_MODEL_NAME``: the model whose encoder
        this client trains where only the predictor is shared. Empty: the run's ``model.name``.
    is_named : bool
        Whether a person gave it its name.
    """

    name: str
    partition_id: int | None
    num_partitions: int | None
    device: torch.device
    folders: Folders
    model_name: str = ""
    is_named: bool = True

    @property
    def has_partition(self) -> bool:
        """Whether its examples are a share of a data set, whatever the data set is."""
        return self.partition_id is not None and self.num_partitions is not None

    @classmethod
    def from_config(cls, node_config: Mapping[str, object]) -> Node:
        """Read a SuperNode's node config.

        Raises
        ------
        SettingsError
            Without a name and a partition id, or with a name or device that can't be used.
        """
        partition_id, num_partitions = (
            _integer(node_config, key) for key in ("partition-id", "num-partitions")
        )
        name = str(node_config.get("client-name") or os.environ.get("MOONFLOWER_CLIENT_NAME") or "")
        is_named = bool(name)
        if not is_named:
            if partition_id is None:
                raise SettingsError(
                    "this node has neither a name nor a partition: start the SuperNode with "
                    "--node-config 'client-name=\"site-a\"', or with partition-id and "
                    "num-partitions"
                )
            name = f"client-{partition_id:04d}"
        return cls(
            name=check_name(name, "client name"),
            partition_id=partition_id,
            num_partitions=num_partitions,
            device=choose_device(str(node_config.get("device") or "")),
            folders=Folders.find(node_config),
            model_name=str(
                node_config.get("model-name") or os.environ.get("MOONFLOWER_MODEL_NAME") or ""
            ),
            is_named=is_named,
        )


def choose_device(wanted: str = "") -> torch.device:
    """Return the wanted device (or ``MOONFLOWER_DEVICE``), else CUDA where there is one."""
    wanted = wanted or os.environ.get(DEVICE_VARIABLE, "")
    if not wanted:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = _parsed(wanted)
    # torch knows more, such as "meta" and "xpu", which no part of the app is tested with.
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingsError(f"device {wanted!r} is unknown: allowed are cpu, cuda and cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f"device {wanted!r} was asked for, but torch sees no CUDA device on this machine: "
            "use device=cpu, or install a CUDA build of torch and a driver"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingsError(
            f"device {wanted!r} was asked for, but torch sees {torch.cuda.device_count()} CUDA "
            "devices on this machine, numbered from 0"
        )
    return device


def _parsed(device: str) -> torch.device | None:
    try:
        return torch.device(device)
    except RuntimeError:
        return None


def _integer(node_config: Mapping[str, object], key: str) -> int | None:
    value = node_config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SettingsError(f"node config {key} = {value!r}: a whole number from 0 is needed")
    return value
