"""What a node keeps on disk between rounds; knows no algorithm.

``STATE_DIR/<experiment>/<client>/round-000012.safetensors`` is its model, and
``.../<client>/<part>/round-000012.safetensors`` what else it keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from filelock import FileLock, Timeout
from torch import Tensor

from common.config import check_name
from common.errors import MoonflowerError
from common.files import DamagedFileError, make_folder, remove_unfinished
from common.logs import NAME
from common.round_files import RoundFiles
from common.storage import read_facts, read_tensors, write_tensors

logger = logging.getLogger(NAME)

LOCAL_MODEL = "model"
"""The part of a client's state that is its model after training."""

_ID = "experiment-id"
"""Under which fact of a file the experiment's id stands."""


class StateError(MoonflowerError, RuntimeError):
    """A client's state can't be read, written or locked; the message names path and reason."""


class ClientState:
    """The files of one client in one experiment, one for each round that it took part in.

    Parameters
    ----------
    folder : Path
        The node's state folder (``Folders.state``).
    experiment, client : str
        Names that the server and the node config gave; checked before they touch a path.
    experiment_id : str
        Tells this experiment from an earlier one of the same name, whose files are not used.
    checkpoints : int
        By how many rounds the server may go back, since it has so many checkpoints; at least 1,
        since a round that is run again after a crash needs the file before its own.

    Attributes
    ----------
    folder : Path
        Where all of it lies.

    Raises
    ------
    SettingsError
        A name can't be a folder.
    """

    def __init__(
        self,
        folder: Path,
        experiment: str,
        client: str,
        experiment_id: str = "",
        checkpoints: int = 2,
    ) -> None:
        self._id, self._checkpoints = experiment_id, checkpoints
        self.folder = (
            folder / check_name(experiment, "experiment") / check_name(client, "client name")
        )

    def keep(
        self, part: str, server_round: int, tensors: Mapping[str, Tensor], rounds: int = 1
    ) -> None:
        """Keep what ``part`` is at the end of ``server_round``, if it is finite.

        What holds NaN or infinity is left out with a warning: the server refuses such a round,
        and what it would do to the rounds from now on would never end.

        It replaces that of an earlier try of the round. Files of later rounds are deleted: they
        belong to a run that has since gone back to an earlier checkpoint. Left here, they would
        outlive this one. So are files of an earlier experiment of this name.

        Parameters
        ----------
        part : str
            Such as :data:`LOCAL_MODEL`.
        server_round : int
        tensors : Mapping[str, Tensor]
        rounds : int
            Newest rounds that a later one wants to find, at least 1; as many more stay as the
            server may go back.

        Raises
        ------
        StateError
            The disk is full, read-only or failing. The files of other rounds are intact.
        SettingsError
            ``part`` can't be a folder.
        """
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            logger.warning(
                "round %d: the %s to be kept holds NaN or infinity and is not kept; the one of "
                "the round before stays. Lower train.learning-rate, or look at this client's data",
                server_round,
                part,
            )
            return
        files = self._files(part)
        path = files.path(server_round)
        with _explained(path, "written"):
            write_tensors(path, tensors, {"round": str(server_round), _ID: self._id})
            files.delete(
                each
                for each in files.rounds()
                if each > server_round or self._is_alien(files.path(each))
            )
            files.prune(rounds + self._checkpoints)

    def kept(
        self, part: str, before: int, count: int = 1, like: Mapping[str, Tensor] | None = None
    ) -> list[dict[str, Tensor]]:
        """Return what was kept of ``part`` in the newest rounds earlier than ``before``.

        A damaged file is set aside with a warning, and the one before it is used. A file of an
        earlier experiment of this name is passed over.

        Parameters
        ----------
        part : str
        before : int
            The current round: its own file, of an earlier try, doesn't count, so that a round
            that is run again gives the same result.
        count : int
            At most so many.
        like : Mapping[str, Tensor], optional
            What the names and shapes have to be: those of the present model.

        Returns
        -------
        list[dict[str, Tensor]]
            Newest first, on the CPU; empty in a client's first round.

        Raises
        ------
        StateError
            A file can't be read for another reason than its content, or is of another model.
        SettingsError
            ``part`` can't be a folder.
        """
        files = self._files(part)
        with _explained(files.folder, "read"):
            return list(islice(self._of_this_experiment(files, before, like), count))

    @contextmanager
    def locked(self, timeout: float) -> Iterator[None]:
        """Keep other processes of this client out while the block runs.

        The operating system releases the lock when a process dies.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the other.

        Raises
        ------
        StateError
            The other one still holds it, or the folder can't be written.
        """
        path = self.folder / ".lock"
        lock = FileLock(path)
        with _explained(path, "locked"):
            make_folder(self.folder)
            try:
                lock.acquire(timeout=timeout)
            except Timeout:
                raise StateError(
                    f"{path} is still held by another process after {timeout:g} s: two processes "
                    "train as the same client. Give every SuperNode on this machine a client-name "
                    "of its own, or end the other process"
                ) from None
        try:
            with _explained(self.folder, "cleaned"):
                for folder in (self.folder, *filter(Path.is_dir, self.folder.iterdir())):
                    remove_unfinished(folder)
            yield
        finally:
            lock.release()

    def _files(self, part: str) -> RoundFiles:
        """Return the files of one thing that this client keeps, in a folder of their own.

        Its model lies in the client's own folder, whose lock covers them all.
        """
        own = part == LOCAL_MODEL
        folder = self.folder if own else self.folder / check_name(part, "part")
        return RoundFiles(folder, ".safetensors")

    def _of_this_experiment(
        self, files: RoundFiles, before: int, like: Mapping[str, Tensor] | None
    ) -> Iterator[dict[str, Tensor]]:
        for server_round, (tensors, facts) in files.whole(read_tensors, before):
            path = files.path(server_round)
            if facts.get(_ID, "") != self._id:
                logger.info("%s is of an earlier experiment of this name and is not used", path)
                continue
            _check_fits(path, tensors, tensors if like is None else like)
            yield tensors

    def _is_alien(self, path: Path) -> bool:
        try:
            return read_facts(path).get(_ID, "") != self._id
        except DamagedFileError:
            return False  # it is set aside when it is asked for


def _check_fits(path: Path, found: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    shapes, wanted = ({name: list(t.shape) for name, t in each.items()} for each in (found, like))
    differing = [
        f"{name} is {shapes.get(name, 'missing')}, the model has {wanted.get(name, 'none')}"
        for name in sorted(shapes.keys() | wanted.keys())
        if shapes.get(name) != wanted.get(name)
    ]
    if differing:
        shown = "; ".join(differing[:3]) + ("; and more" if len(differing) > 3 else "")
        raise StateError(
            f"{path} is of another model than this experiment's: {shown}. Give the experiment "
            f"another name, or move {path.parent} away"
        )


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{path} can't be {what}: {error}. Free space or fix the permissions of the state "
            "folder, or choose another with state-dir in the node config or MOONFLOWER_STATE_DIR"
        ) from error
