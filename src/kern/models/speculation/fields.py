"""The fields of a DSpark draft's config.json, and what is done with each."""

from __future__ import annotations

from typing import Final

from kern.checkpoints.fields import Table, irrelevant, obeyed, refused
from kern.checkpoints.hf_fields import HF_FIELDS

DRAFT_FIELDS: Final[Table] = {
    **HF_FIELDS,
    "architectures": irrelevant("`num_anchors` marks the layout"),
    "auto_map": irrelevant("the code that trained it"),
    "tie_word_embeddings": obeyed("refused where the head would be the draft's own embedding"),
    "eos_token_id": irrelevant("the target's are used"),
    "num_anchors": obeyed("marks the layout in which the anchor's row predicts the first draft"),
    "block_size": obeyed("drafts per round"),
    "target_layer_ids": obeyed("the layers of the target whose outputs are read"),
    "num_target_layers": obeyed("refused where the target has a different number"),
    "mask_token_id": obeyed("the id of a token to be drafted"),
    "markov_rank": obeyed(),
    "markov_head_type": refused("", "vanilla"),
    "enable_confidence_head": irrelevant("estimates how certain the draft is; the target decides"),
    "loss_decay_gamma": irrelevant("training"),
}
"""The fields of a transformer, and those of a draft."""
