"""A draft's tensors under their published names: from a DSpark folder, or random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.models.checkpoint import Checkpoint, CheckpointError
from kern.models.hf_checkpoint import HuggingFaceCheckpoint
from kern.models.parameters import Shape, parameter_shapes
from kern.models.random_checkpoint import random_tensor
from kern.models.speculation.config import DraftConfig

FC: Final = "fc.weight"
HIDDEN_NORM: Final = "hidden_norm.weight"
MARKOV_W1: Final = "markov_head.markov_w1.weight"
MARKOV_W2: Final = "markov_head.markov_w2.weight"
TABLES: Final = ("embed_tokens.weight", "lm_head.weight")
"""What a draft may have of its own, and else takes from its target."""
_ROWS: Final = 4096
"""Rows of a table compared at once."""


def draft_shapes(config: DraftConfig) -> dict[str, Shape]:
    """Names and shapes of everything that a draft of this config is made of."""
    c = config.transformer
    shapes = {name.removeprefix("model."): shape for name, shape in parameter_shapes(c).items()}
    return shapes | {
        FC: (c.hidden, len(config.taps) * c.hidden),
        HIDDEN_NORM: (c.hidden,),
        MARKOV_W1: (c.vocabulary, config.rank),
        MARKOV_W2: (c.vocabulary, config.rank),
    }


class DraftTensors(Protocol):
    """Where a draft's tensors come from."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor in bf16, f16 or f32. Raises CheckpointError where there is none."""


@dataclass(frozen=True)
class RandomDraft:
    """Random tensors of a draft that shares its tables with the target."""

    config: DraftConfig
    seed: int

    def has(self, name: str) -> bool:
        """Whether a draft of this config has such a tensor of its own."""
        return name not in TABLES and name in draft_shapes(self.config)

    def tensor(self, name: str) -> NDArray[Any]:
        """The tensor in bf16, of other values than a target's of the same name. Raises CheckpointError."""
        if not self.has(name):
            raise CheckpointError(f"a random draft has no tensor {name}")
        return random_tensor(self.seed, f"draft.{name}", draft_shapes(self.config)[name])


def check_tensors(draft: HuggingFaceCheckpoint, config: DraftConfig) -> None:
    """Raises CheckpointError, listing the tensors that the folder lacks, or naming one of another shape."""
    shapes = draft_shapes(config)
    missing = [name for name in shapes if name not in TABLES and not draft.has(name)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise CheckpointError(
            f"the draft has no tensor {', '.join(missing[:3])}{more}", "give a DSpark checkpoint as it is published"
        )
    for name, shape in shapes.items():
        if draft.has(name) and draft.tensor(name).shape != shape:
            raise CheckpointError(
                f"the draft's {name} has the shape {draft.tensor(name).shape}, its config says {shape}",
                "give config.json and weights of one and the same checkpoint",
            )


def shared_tables(draft: DraftTensors, target: Checkpoint) -> frozenset[str]:
    """Those of TABLES that are the target's: the draft has none, or the very same values in bf16."""
    head = "model.embed_tokens.weight" if target.config.tied_embeddings else "lm_head.weight"
    theirs = dict(zip(TABLES, ("model.embed_tokens.weight", head), strict=True))
    return frozenset(
        name for name in TABLES if not draft.has(name) or _equal(draft.tensor(name), target.tensor(theirs[name]))
    )


def _equal(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    if ours.shape != theirs.shape:
        return False
    starts = range(0, len(ours), _ROWS)
    return all(np.array_equal(_bits(ours[i : i + _ROWS]), _bits(theirs[i : i + _ROWS])) for i in starts)


def _bits(rows: NDArray[Any]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(rows.astype(ml_dtypes.bfloat16, copy=False)).view(np.uint16)
