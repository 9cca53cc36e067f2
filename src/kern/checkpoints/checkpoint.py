"""What a generator needs from a checkpoint in any format: a config, tensors, a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from kern.checkpoints.config import TransformerConfig
from kern.manifest.errors import KernError


class CheckpointError(
    KernError, code="bad-checkpoint", exit_code=2, help="correct the file, or download it again from its publisher"
):
    """A checkpoint cannot be read, or is incomplete."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """Tokenizer, stop ids and chat template. `tokenizer_json` is in the format of the tokenizers library.

    Without a tokenizer, prompts are token ids. `special_tokens` are the tokens that the chat template refers to by
    name (`bos_token`).
    """

    tokenizer_json: bytes | None = None
    stop_ids: tuple[int, ...] = ()
    bos: int | None = None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a checkpoint: name and dtype as stored, shape, and whether it can be read."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    readable: bool


class Checkpoint(Protocol):
    """A model's parameters under their Hugging Face names (`model.layers.0.self_attn.q_proj.weight`)."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor by its Hugging Face name, or by its own where it has no such name."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """The unknown settings."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on how the files are read, one per line."""

    @property
    def config(self) -> TransformerConfig:
        """The model's sizes."""

    @property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template."""

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor in bf16, f16 or f32, matrices as [outputs, inputs].

        Raises CheckpointError for an unknown name.
        """
