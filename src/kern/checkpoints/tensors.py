"""The tensors of a checkpoint held against those that a model is made of: each is used, irrelevant, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.checkpoint import Checkpoint, CheckpointError, StoredTensor
from kern.checkpoints.config import Shape, parameter_shapes
from kern.manifest.counts import counted, listed

IRRELEVANT: Final[Mapping[str, str]] = {
    ".rotary_emb.inv_freq": "the rotary frequencies, which follow from the config",
    ".rotary_emb.cos_cached": "a table of them",
    ".rotary_emb.sin_cached": "a table of them",
}
"""Ends of the names of tensors that are left out."""
_KINDS: Final[Mapping[str, str]] = {
    "bias": "biases are not built",
    "exp": "a mixture of experts is not built",
    "lora": "merge the adapter into the model first",
    "scale": "give the checkpoint before its quantisation, or a GGUF file",
    "qweight": "give the checkpoint before its quantisation, or a GGUF file",
    "packed": "give the checkpoint before its quantisation, or a GGUF file",
    "rope_": "rope scaling of this kind is not built",
}
_HEAD: Final = "lm_head.weight"
_EMBEDDING: Final = "model.embed_tokens.weight"
_ROWS: Final = 4096
"""Rows of a table compared at once."""


def check_checkpoint(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError, naming a tensor, where the files have other tensors than their config asks for.

    A head beside `tie_word_embeddings` is as good as none where it is the embedding.
    """
    config, stored = checkpoint.config, checkpoint.tensors
    wanted = parameter_shapes(config)
    twice = config.tied_embeddings and _HEAD in stored
    if twice:
        wanted[_HEAD] = (config.vocabulary, config.hidden)
    check_tensors(stored, wanted)
    if twice and not equal(checkpoint.tensor(_HEAD), checkpoint.tensor(_EMBEDDING)):
        raise CheckpointError(
            f"{_HEAD} is not the embedding, and tie_word_embeddings is true",
            "some programs use the head and some do not: correct tie_word_embeddings, or leave the head out",
        )


def check_tensors(
    stored: Mapping[str, StoredTensor],
    wanted: Mapping[str, Shape],
    *,
    whose: str = "the checkpoint",
    optional: Collection[str] = (),
    irrelevant: Collection[str] = tuple(IRRELEVANT),
) -> None:
    """Raises CheckpointError where a tensor is missing, not used, of another shape, or of a dtype that is not read.

    `optional` may be missing; `irrelevant` are ends of names that are not looked at.
    """
    missing = [name for name in wanted if name not in stored and name not in optional]
    if missing:
        raise CheckpointError(f"{whose} has no tensor {listed(missing)}", _why_missing(missing, stored))
    for name, shape in wanted.items():
        if name in stored:
            _check_tensor(stored[name], shape)
    unused = [each.name for name, each in stored.items() if name not in wanted and not name.endswith(tuple(irrelevant))]
    if unused:
        are = "is" if len(unused) == 1 else "are"
        found = f"{counted(len(unused), 'tensor')} that {are} not used: {listed(unused)}"
        raise CheckpointError(f"{whose} has {found}", _why_unused(unused[0]))


def equal(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Whether two tables are the same in bf16."""
    if ours.shape != theirs.shape:
        return False
    starts = range(0, len(ours), _ROWS)
    return all(np.array_equal(_bits(ours[i : i + _ROWS]), _bits(theirs[i : i + _ROWS])) for i in starts)


def _bits(rows: NDArray[Any]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(rows.astype(ml_dtypes.bfloat16, copy=False)).view(np.uint16)


def _check_tensor(stored: StoredTensor, shape: Shape) -> None:
    if stored.shape != shape:
        raise CheckpointError(
            f"{stored.name} has the shape {stored.shape}, the config says {shape}",
            "give config and weights of one and the same checkpoint",
        )
    if not stored.readable:
        raise CheckpointError(f"{stored.name} is stored as {stored.dtype}", "this type cannot be read")


def _why_missing(missing: Sequence[str], stored: Mapping[str, StoredTensor]) -> str:
    if missing == [_HEAD]:
        return "tie_word_embeddings is false in its config, which is what it means where it is left out"
    if all(name.removeprefix("model.") in stored for name in missing if name != _HEAD):
        return "it was saved without its head: give the model ForCausalLM"
    return "give all files of the checkpoint, as it is published"


def _why_unused(name: str) -> str:
    kinds = (help for part, help in _KINDS.items() if part in name.lower())
    return next(kinds, "a model with it would not compute what this one does")
