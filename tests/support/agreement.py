"""How a run's logits and choices stand to float32's: choices may part only where float32 itself is all but tied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.runtime.loading import load
from kern.text import Tokenizer
from support.host_driven import HostDriven

F32 = NDArray[np.float32]

Logits = Callable[[Sequence[int]], F32]
"""Ids → f32 [tokens, vocabulary], what follows each of them, in float32."""


@dataclass(frozen=True)
class Run:
    """The ids that followed a prompt, and the logits [ids, vocabulary] that each was chosen from."""

    prompt: Sequence[int]
    ids: Sequence[int]
    logits: F32

    def same(self, other: Run) -> bool:
        """Whether both did the same arithmetic: equal byte for byte."""
        return list(self.ids) == list(other.ids) and self.logits.tobytes() == other.logits.tobytes()


def run(
    folder: Path, prompt: Sequence[int], count: int, *, capacity: int = 4096, check: bool = False, **options: Any
) -> Run:
    """Generate `count` ids step by step and keep the logits of each; `options` are the generator's."""
    with load(folder, capacity=capacity, sharing=False, check=check) as executable:
        generator = HostDriven(executable, Tokenizer.load(folder), **options)
        generation = generator.generate(prompt, max_tokens=count, ignore_stop=True)
        logits = [executable.read("logits", {"seqs": 1})[0] for _ in generation]
    return Run(prompt, generation.output_ids, np.array(logits))


CONTENDERS = 10
"""The greatest logits of a row: those that a choice is made from."""


@dataclass(frozen=True)
class Agreement:
    """How far a run's logits are from float32's, each row less its mean, which changes no probability.

    `relative` is the length of a row's difference as a share of the row's, `error` the greatest difference of a
    contender's logit; both are the worst of all steps, `first` is the first step's `relative`. `parted` is the first
    step at which float32 would have chosen another id, by `margin`; None: there is none. `widest` is the greatest
    margin of any such step.
    """

    error: float
    relative: float
    first: float
    parted: int | None
    margin: float
    widest: float

    def __str__(self) -> str:
        at = "same ids" if self.parted is None else f"parted at step {self.parted}, margin {self.margin:.4f}"
        return (
            f"{at}; logits off by {self.error:.4f} at most, rows by {self.relative:.2%}, the first by {self.first:.2%}"
        )


def agreement(found: Run, reference: Logits) -> Agreement:
    """The run compared with float32 logits over the same ids."""
    rows = reference([*found.prompt, *found.ids])[len(found.prompt) - 1 : -1]
    off = _centred(found.logits) - _centred(rows)
    relative = np.linalg.norm(off, axis=1) / np.linalg.norm(_centred(rows), axis=1)
    contenders = np.argpartition(rows, -CONTENDERS, axis=1)[:, -CONTENDERS:]
    error = float(np.abs(np.take_along_axis(off, contenders, axis=1)).max())
    margins = rows.max(axis=1) - rows[np.arange(len(rows)), list(found.ids)]
    parted = next((step for step, margin in enumerate(margins) if margin > 0), None)
    margin = 0.0 if parted is None else float(margins[parted])
    return Agreement(error, float(relative.max()), float(relative[0]), parted, margin, float(margins.max()))


def _centred(rows: F32) -> F32:
    return rows - rows.mean(axis=1, keepdims=True)


def assert_agrees(found: Run, reference: Logits, *, within: float, label: str = "") -> Agreement:
    """Every row of logits is within `within` of float32's, relative to its length.

    Each id is the greatest of the run's own logits; where float32 would have chosen another, its margin must be below
    the error of this run's own logits.
    """
    assert found.logits.argmax(axis=1).tolist() == list(found.ids)
    measured = agreement(found, reference)
    print(f"{label or 'run'}: {measured}")
    assert measured.relative <= within, measured
    assert measured.widest < measured.error, measured
    return measured


def assert_near(first: Run, second: Run, reference: Logits, label: str = "") -> None:
    """Two runs of one prompt part, if at all, where float32's margin is below the error of either."""
    parted = next((step for step, pair in enumerate(zip(first.ids, second.ids, strict=True)) if len({*pair}) > 1), None)
    if parted is None:
        return
    row = reference([*first.prompt, *first.ids[:parted]])[-1]
    margin = abs(float(row[first.ids[parted]] - row[second.ids[parted]]))
    error = agreement(first, reference).error + agreement(second, reference).error
    print(f"{label}: parted at step {parted}, margin {margin:.4f}, both errors {error:.4f}")
    assert margin < error
