"""A draft to build: opened, compared with its target, its weights named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.config import Shape, TransformerConfig
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.hf_config import unknown_settings
from kern.models.speculation.checkpoint import (
    FC,
    HIDDEN_NORM,
    MARKOV_W1,
    MARKOV_W2,
    TABLES,
    DraftTensors,
    RandomDraft,
    check_draft,
    draft_shapes,
    shared_tables,
)
from kern.models.speculation.config import DRAFT_FIELDS, DraftConfig, fitted, from_dspark, random_draft
from kern.models.weights import EMBEDDING, ROPE_TABLE, Weight, WeightGroup, weights_of

RANDOM: Final = "random"
PREFIX: Final = "draft."
_LM_HEAD: Final = "lm_head"


@dataclass(frozen=True)
class Draft:
    """A draft for a target. `shared` are the target's weights that it uses, by the target's names.

    `unknown` are the fields of its config that no table lists.
    """

    config: DraftConfig
    shared: frozenset[str]
    tensors: DraftTensors
    unknown: tuple[str, ...] = ()

    @property
    def weights(self) -> dict[str, Weight]:
        """Its own weights by the name without PREFIX, in the order of the file."""
        c, taps = self.config.transformer, self.config.taps
        layers = {name: weight for name, weight in weights_of(c).items() if name not in self.shared}
        ours = [
            *(Weight(f"fc.{i}", "bf16", (c.hidden, c.hidden), (f"{FC}.{i}",)) for i in range(len(taps))),
            Weight("hidden_norm", "bf16", (c.hidden,), (HIDDEN_NORM,)),
            Weight("markov_w1", "bf16", (c.vocabulary, self.config.rank), (MARKOV_W1,)),
            Weight("markov_w2", "bf16", (c.vocabulary, self.config.rank), (MARKOV_W2,)),
        ]
        every = layers | {weight.name: weight for weight in ours}
        return {name: replace(weight, name=PREFIX + name) for name, weight in every.items()}

    @property
    def weight_group(self) -> WeightGroup:
        """Its group of the weights file."""
        return WeightGroup(self.config.transformer, self.weights, self._shapes, self._tensor)

    @property
    def _shapes(self) -> Mapping[str, Shape]:
        # The sources of a layer's weights have the names of a target's tensors.
        hidden = self.config.transformer.hidden
        slices = {f"{FC}.{i}": (hidden, hidden) for i in range(len(self.config.taps))}
        published = draft_shapes(self.config)
        return published | {f"model.{name}": shape for name, shape in published.items()} | slices

    def _tensor(self, name: str) -> NDArray[Any]:
        """A tensor by its published name, or by the target's for it; `fc.weight.I` is the columns of tap I."""
        if not name.startswith(f"{FC}."):
            return self.tensors.tensor(name.removeprefix("model."))
        hidden, tap = self.config.transformer.hidden, int(name.removeprefix(f"{FC}."))
        return self.tensors.tensor(FC)[:, tap * hidden : (tap + 1) * hidden]


def open_draft(draft: str | Path, target: Checkpoint, *, seed: int, taps_before: bool) -> Draft:
    """The draft of a DSpark folder, or of random weights for `random`, for this target.

    Raises UnsupportedModel and CheckpointError where it is not a draft, or not one of this target.
    """
    if draft == RANDOM:
        config = fitted(random_draft(target.config), target.config, before=taps_before)
        return Draft(config, _shared(config, target.config, frozenset(TABLES)), RandomDraft(config, seed))
    if not os.path.isdir(draft):
        raise CheckpointError(f"no such folder: {draft}", "give a DSpark draft's folder, or `random`")
    folder = HuggingFaceCheckpoint(Path(draft))
    config = fitted(from_dspark(folder.settings), target.config, before=taps_before)
    check_draft(folder, config)
    tables = shared_tables(folder, target)
    if folder.settings.get("tie_word_embeddings") is True and TABLES[0] not in tables and TABLES[1] in tables:
        raise CheckpointError(
            "the draft's lm_head is its own embed_tokens (tie_word_embeddings)",
            "give it an lm_head.weight, or leave embed_tokens.weight out, so that both are the target's",
        )
    unknown = unknown_settings(folder.settings, DRAFT_FIELDS)
    return Draft(config, _shared(config, target.config, tables), folder, unknown)


def _shared(config: DraftConfig, target: TransformerConfig, tables: frozenset[str]) -> frozenset[str]:
    names = dict(zip(TABLES, (EMBEDDING, _LM_HEAD), strict=True))
    ours = config.transformer
    same = (ours.rope_theta, ours.rope_scaling) == (target.rope_theta, target.rope_scaling)
    rope = {ROPE_TABLE} if same else set()
    return frozenset({names[table] for table in tables} | rope)
