"""What a generator needs of a checkpoint, whatever file it comes from: a config, tensors, the text side."""

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
    """The text side of a checkpoint: `tokenizer_json` is in the format of the tokenizers library.

    Without a tokenizer there is no text, and prompts are ids. `special_tokens` are the tokens that the chat template
    knows by name (`bos_token`).
    """

    tokenizer_json: bytes | None = None
    stop_ids: tuple[int, ...] = ()
    bos: int | None = None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a checkpoint: its name and dtype as the file has them, its shape, and whether it can be read."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    readable: bool


class Checkpoint(Protocol):
    """A model's parameters under their Hugging Face names (`model.layers.0.self_attn.q_proj.weight`)."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor of the files, by its Hugging Face name, or by its own where it has none."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """The settings of which nothing is known."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of how the files are read, a line each."""

    @property
    def config(self) -> TransformerConfig:
        """The model's sizes."""

    @property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template."""

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor in bf16, f16 or f32, matrices as [outputs, inputs].

        Raises CheckpointError where there is none of that name.
        """
