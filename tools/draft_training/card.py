"""The model card of a trained draft, filled in with what was done and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from draft_training.acceptance import Acceptance
from draft_training.draft import DraftConfig
from draft_training.export import stored_bytes
from draft_training.objective import CROSS_ENTROPY_SHARE, DECAY
from draft_training.training import ENTROPY_FIRST, WARM_UP, Schedule


@dataclass(frozen=True)
class Run:
    """What a training run was: the target's name and hash, the text, the schedule, and how far it came."""

    target: str
    target_sha256: str | None
    recipe: Mapping[str, Any]
    texts: int
    tokens: int
    schedule: Schedule
    steps: int
    seconds: float
    device: str
    torch: str


_CARD: Final = """\
# A DSpark draft for {target}

A draft for speculative decoding: from the target's features it guesses {block} tokens at once, which the target then
checks in one pass. It is of no use alone, and text decoded with it is what the target alone would write.

- **Shape**: {layers} {family} layers of width {hidden}, MLP {ffn}, {heads} query and {kv_heads} key heads; taps at the
  output of target layers {taps} of {target_layers}; Markov rank {rank}; mask id {mask}; no confidence head.
- **File**: `model.safetensors`, bf16, {bytes:,} bytes of tensors. `embed_tokens.weight` and `lm_head.weight` are left
  out: they are the target's, frozen in training, and kern takes them from there.
- **Layout**: a block begins with the anchor, and row k predicts the token k + 1 positions after it.

## Measured

Greedy speculation along {held_out} greedy completions of prompts that were not trained on (other topics, other
phrasings, other seeds), with the weights as stored, in float32 on {device}. Tokens per round include the
target's own.

{table}

The share of rounds that accept draft k, of those that accept all before it:

{places}

## How it was made

- **Target**: `{target}`, its weights rounded to bf16.{target_hash}
- **Text**: {texts:,} completions by the target, {tokens:,} tokens; {recipe}.
- **Training**: {steps:,} of {planned:,} steps of {batch} texts with {anchors} blocks each, in {seconds:.0f} s on
  {device} (torch {torch}); AdamW, learning rate {rate:g}, {warm:.0%} warm-up, cosine to 0, gradients clipped at 1;
  teacher forcing; {share:g} · cross entropy + {rest:g} · L1 distance to the target's distribution (cross entropy alone
  in the first {first:.0%}), a label's weight exp(-k / {decay:g}); seed {seed}.
- **Frozen**: embedding and output projection. Everything else was initialised at random.

`tools/train_draft.py` of the kern repository repeats this; sums on a GPU differ in their last bits from run to run.

## Not for

Another target, or this one fine-tuned: the text stays right, but fewer drafts are accepted. Text unlike the training
text (English prose, lists, short programs, by the target itself) is guessed less well.
"""


def model_card(config: DraftConfig, run: Run, found: Mapping[str, Acceptance], held_out: int) -> str:
    """README.md: how the draft was made, and what was measured."""
    c, schedule = config.transformer, run.schedule
    return _CARD.format(
        target=run.target, target_hash=f" SHA-256:\n  `{run.target_sha256}`" if run.target_sha256 else "",
        block=config.block, layers=c.layers, family=c.family, hidden=c.hidden, ffn=c.ffn, heads=c.heads,
        kv_heads=c.kv_heads, taps=", ".join(map(str, config.taps)), target_layers=config.target_layers,
        rank=config.rank, mask=config.mask, bytes=stored_bytes(config), held_out=held_out, table=_table(found),
        places=_places(found), texts=run.texts, tokens=run.tokens,
        recipe=", ".join(f"{name} {value}" for name, value in run.recipe.items()), steps=run.steps,
        planned=schedule.steps, batch=schedule.batch, anchors=schedule.anchors, seconds=run.seconds, device=run.device,
        torch=run.torch, rate=schedule.learning_rate, warm=WARM_UP, share=CROSS_ENTROPY_SHARE,
        rest=1 - CROSS_ENTROPY_SHARE, first=ENTROPY_FIRST, decay=DECAY, seed=schedule.seed,
    )  # fmt: skip


def total(found: Mapping[str, Acceptance], block: int) -> Acceptance:
    """All kinds of text together."""
    return sum(found.values(), Acceptance((0,) * (block + 1)))


def _table(found: Mapping[str, Acceptance]) -> str:
    block = len(next(iter(found.values())).counts) - 1
    rows = {**dict(sorted(found.items())), "all": total(found, block)}
    lines = [f"| {kind} | {acceptance.rounds:,} | {acceptance.tau:.2f} |" for kind, acceptance in rows.items()]
    return "\n".join(["| text | rounds | tokens per round |", "|---|---|---|", *lines])


def _places(found: Mapping[str, Acceptance]) -> str:
    block = len(next(iter(found.values())).counts) - 1
    shares = total(found, block).by_place
    heads = " | ".join(str(place + 1) for place in range(block))
    return f"| k | {heads} |\n|{'---|' * (block + 1)}\n| share | {' | '.join(f'{share:.2f}' for share in shares)} |"
