"""A draft's tensors under their published names: from a DSpark folder, or random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.config import Shape, parameter_shapes
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.random_checkpoint import random_tensor
from kern.checkpoints.tensors import IRRELEVANT, check_tensors, equal
from kern.models.speculation.config import DraftConfig

FC: Final = "fc.weight"
HIDDEN_NORM: Final = "hidden_norm.weight"
MARKOV_W1: Final = "markov_head.markov_w1.weight"
MARKOV_W2: Final = "markov_head.markov_w2.weight"
TABLES: Final = ("embed_tokens.weight", "lm_head.weight")
"""The tables that a draft may have itself, or share with its target."""
CONFIDENCE: Final = ("confidence_head.proj.weight", "confidence_head.proj.bias")
"""The head that estimates how certain a draft is: it is not used."""


def draft_shapes(config: DraftConfig) -> dict[str, Shape]:
    """The names and shapes of all tensors of a draft of this config."""
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
        """A tensor in bf16, f16 or f32. Raises CheckpointError for an unknown name."""


@dataclass(frozen=True)
class RandomDraft:
    """Random tensors of a draft that shares its tables with the target."""

    config: DraftConfig
    seed: int

    def has(self, name: str) -> bool:
        """Whether a draft of this config has its own tensor of this name."""
        return name not in TABLES and name in draft_shapes(self.config)

    def tensor(self, name: str) -> NDArray[Any]:
        """The tensor in bf16, with other values than the target's of the same name. Raises CheckpointError."""
        if not self.has(name):
            raise CheckpointError(f"a random draft has no tensor {name}")
        return random_tensor(self.seed, f"draft.{name}", draft_shapes(self.config)[name])


def check_draft(draft: HuggingFaceCheckpoint, config: DraftConfig) -> None:
    """Raises CheckpointError where the folder's tensors are not those of a draft of this config."""
    irrelevant = (*IRRELEVANT, *CONFIDENCE)
    check_tensors(draft.tensors, draft_shapes(config), whose="the draft", optional=TABLES, irrelevant=irrelevant)


def shared_tables(draft: DraftTensors, target: Checkpoint) -> frozenset[str]:
    """Those of TABLES that are the target's: the draft has no such tensor, or one with the same values in bf16."""
    head = "model.embed_tokens.weight" if target.config.tied_embeddings else "lm_head.weight"
    theirs = dict(zip(TABLES, ("model.embed_tokens.weight", head), strict=True))
    return frozenset(
        name for name in TABLES if not draft.has(name) or equal(draft.tensor(name), target.tensor(theirs[name]))
    )
