"""``hf-encoder``: an encoder of Hugging Face from a folder that every machine has."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from common.config import ModelSettings, SettingsError
from common.models.layers import finish
from common.models.split import SplitModel
from common.models.token_layers import is_token, masked_mean, shortened
from common.node import expanded, home_folder

if TYPE_CHECKING:
    from common.data import DataSpec
    from common.data.kinds import Tokens

FOLDER_VARIABLE = "MOONFLOWER_MODELS_DIR"
FILES = ("config.json", "model.safetensors")
"""What is read of the folder, and what its checksum is of."""


def hf_encoder(settings: ModelSettings, spec: DataSpec) -> SplitModel:
    """Return the encoder in ``model.folder``, whose mean over the tokens is ``z``.

    Ids of the data are those of the encoder's tokeniser plus 1, with 0 for padding. The first
    ``model.freeze-layers`` of its layers are not trained, nor are its embeddings then.

    Raises
    ------
    SettingsError
        No such folder, another one than the run's, not an encoder that ``transformers`` has of its
        own, or data that it can't take.
    """
    kind = cast("Tokens", spec.kind)
    folder = models_folder() / settings.folder
    check_machine(settings)
    if kind.tokenizer == "words":
        raise SettingsError(
            "model.name = 'hf-encoder' reads the ids of its own tokeniser, and these are hashes of "
            "words: set data.tokenizer to its file (docs/data.md)"
        )
    encoder = HfEncoder(*_read(folder), kind)
    encoder.freeze(settings.freeze_layers)
    return finish(encoder, encoder.width, settings, spec)


def models_folder() -> Path:
    """Return where this machine keeps encoders: ``MOONFLOWER_MODELS_DIR``, or in its home."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return expanded(chosen) if chosen else home_folder() / "models"


def check_machine(settings: ModelSettings) -> None:
    """Refuse a machine whose folder is not the one whose checksum the run names.

    Raises
    ------
    SettingsError
    """
    folder = models_folder() / settings.folder
    try:
        found = folder_sha256(folder)
    except OSError as error:
        raise SettingsError(
            f"model.folder = {settings.folder!r}: {error}. Put the encoder's {' and '.join(FILES)} "
            f"into {folder}, or name another place for such folders with {FOLDER_VARIABLE}"
        ) from error
    if found != settings.folder_sha256:
        raise SettingsError(
            f"model.folder = {settings.folder!r}: the SHA-256 of {folder} is {found}, and "
            f"model.folder-sha256 is {settings.folder_sha256!r}. If this encoder is meant, set "
            "model.folder-sha256 to its own; else get the files that the others have"
        )


def folder_sha256(folder: Path) -> str:
    """Return the SHA-256 of the SHA-256s of ``FILES``, in hexadecimal.

    As ``sha256sum config.json model.safetensors | sha256sum`` prints it.

    Raises
    ------
    OSError
        One of them is missing or can't be read.
    """
    lines = []
    for name in FILES:
        with (folder / name).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class HfEncoder(nn.Module):
    """Ids ``[batch, length]`` to float ``[batch, width]``.

    Parameters
    ----------
    encoder : nn.Module
        Of ``transformers``.
    config : object
        Its configuration.
    kind : Tokens

    Raises
    ------
    SettingsError
        It knows fewer tokens or positions than the data have.
    """

    def __init__(self, encoder: nn.Module, config: Any, kind: Tokens) -> None:
        super().__init__()
        positions = getattr(config, "max_position_embeddings", None) or kind.length
        # RoBERTa's positions begin behind its padding's.
        offset = config.pad_token_id + 1 if "roberta" in config.model_type else 0
        if kind.vocabulary > config.vocab_size + 1 or kind.length > positions - offset:
            raise SettingsError(
                f"this encoder has {config.vocab_size} tokens and {positions - offset} positions: "
                f"set data.vocabulary-size to at most {config.vocab_size + 1} (now "
                f"{kind.vocabulary}) and data.max-length to at most {positions - offset} (now "
                f"{kind.length})"
            )
        self.encoder = encoder
        self.width = int(config.hidden_size)
        self._padding = config.pad_token_id or 0

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean over the tokens of the last layer."""
        ids = shortened(ids)
        mask = is_token(ids)
        own = torch.where(mask, ids - 1, self._padding).long()
        # A text without a token attends to its first padding: over nothing there is no softmax.
        attended = mask.clone()
        attended[:, 0] = True
        found = self.encoder(input_ids=own, attention_mask=attended.long()).last_hidden_state
        return masked_mean(found, mask)

    def freeze(self, layers: int) -> None:
        """Leave embeddings and the first ``layers`` of the layers as they are; 0: train all.

        Raises
        ------
        SettingsError
            It has not so many, or none that can be counted.
        """
        if not layers:
            return
        stacks = [part for part in self.encoder.modules() if isinstance(part, nn.ModuleList)]
        stack = max(stacks, key=len, default=None)
        if stack is None or layers > len(stack):
            raise SettingsError(
                f"model.freeze-layers = {layers}, and this encoder has "
                f"{0 if stack is None else len(stack)} layers"
            )
        embeddings = cast(Any, self.encoder).embeddings
        for part in (embeddings, *stack[:layers]):
            part.requires_grad_(requires_grad=False)


def _read(folder: Path) -> tuple[nn.Module, Any]:
    """Return the encoder and its configuration; nothing but the folder is looked at.

    On PyTorch's device "meta" it gets shapes and no numbers.
    """
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError as error:
        raise SettingsError(
            "model.name = 'hf-encoder' needs the library transformers, which is not installed "
            "here: pip install 'moonflower[hf]'"
        ) from error
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **local)
        if torch.get_default_device().type == "meta":
            model = AutoModel.from_config(config, trust_remote_code=False)
        else:
            model = AutoModel.from_pretrained(
                folder, config=config, use_safetensors=True, dtype=torch.float32, **local
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise SettingsError(f"the encoder in {folder} can't be read: {error}") from error
    if getattr(model, "pooler", None) is not None:
        # It reads the first token alone, for which z has no use: it would never learn.
        model.pooler = None
    return model, config
