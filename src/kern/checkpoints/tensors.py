"""Checks the tensors of a checkpoint against the parameters of its model: each is used, irrelevant, or refused."""

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
"""Suffixes of the names of tensors that are skipped."""
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
    """Raises CheckpointError, naming a tensor, where the files have other tensors than the config asks for.

    With `tie_word_embeddings`, a head is accepted if it equals the embedding.
    """
    config, stored = checkpoint.config, checkpoint.tensors
    wanted = parameter_shapes(config)
    tied_head = config.tied_embeddings and _HEAD in stored
    if tied_head:
        wanted[_HEAD] = (config.vocabulary, config.hidden)
    check_tensors(stored, wanted)
    if tied_head and not equal(checkpoint.tensor(_HEAD), checkpoint.tensor(_EMBEDDING)):
        raise CheckpointError(
            f"{_HEAD} differs from the embedding, but tie_word_embeddings is true",
            "programs differ in which they use: correct tie_word_embeddings, or remove the head",
        )


def check_tensors(
    stored: Mapping[str, StoredTensor],
    wanted: Mapping[str, Shape],
    *,
    whose: str = "the checkpoint",
    optional: Collection[str] = (),
    irrelevant: Collection[str] = tuple(IRRELEVANT),
) -> None:
    """Raises CheckpointError where a tensor is missing or unused, or has the wrong shape or an unsupported dtype.

    `optional` may be missing; tensors whose names end with one of `irrelevant` are skipped.
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
            f"{stored.name} has the shape {stored.shape}; the config asks for {shape}",
            "give the config and the weights of the same checkpoint",
        )
    if not stored.readable:
        raise CheckpointError(f"{stored.name} has the dtype {stored.dtype}", "this type is not supported")


def _why_missing(missing: Sequence[str], stored: Mapping[str, StoredTensor]) -> str:
    if missing == [_HEAD]:
        return "tie_word_embeddings is false in its config, or missing, which means false"
    if all(name.removeprefix("model.") in stored for name in missing if name != _HEAD):
        return "it was saved without its head: give the …ForCausalLM model"
    return "give all files of the checkpoint as published"


def _why_unused(name: str) -> str:
    kinds = (help for part, help in _KINDS.items() if part in name.lower())
    return next(kinds, "the model would compute something else")
