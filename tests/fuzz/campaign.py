"""A run of several targets in turns: what each has tried and found, and the corpus that grows with coverage."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from fuzz.target import ACCEPTED, Target, input_of
from fuzz.worker import Batch, Line, Result, Worker

BATCH: Final = 200
"""Inputs for one process: the next ones start from the corpus as it has grown by then."""
KEPT: Final = 3
"""Inputs that are kept of one kind of finding."""


@dataclass
class Campaign:
    """What one target has been given so far, and what came of it."""

    target: Target
    seed: int
    grow: bool
    corpus: list[bytes] = field(init=False)
    seen: frozenset[Line] = frozenset()
    index: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[tuple[Result, bytes]]] = field(default_factory=dict)
    found: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.corpus = list(self.target.seeds())

    def batch(self, size: int) -> Batch:
        """The next inputs."""
        self.index += size
        seen = self.seen if self.grow else None
        return Batch(self.target, tuple(self.corpus), self.seed, self.index - size, self.index, seen)

    def take(self, batch: Batch, result: Result) -> None:
        """Count a result; keep the input of a finding, and one that reached something new."""
        self.outcomes[result.outcome] += 1
        if result.kind is None and result.index < len(self.target.seeds()) and result.outcome != ACCEPTED:
            result = Result(result.index, result.outcome, f"a seed was {result.outcome}")
        if result.kind is not None:
            self.found += 1
            kept = self.findings.setdefault(result.kind, [])
            if len(kept) < KEPT:
                kept.append((result, input_of(self.target, batch.corpus, self.seed, result.index)))
        elif result.lines:
            self.seen |= result.lines
            if result.index >= len(self.target.seeds()):
                self.corpus.append(input_of(self.target, batch.corpus, self.seed, result.index))


def fuzz(
    targets: Sequence[Target], seed: int, *, inputs: int | None = None, minutes: float = 0.0, grow: bool = False
) -> list[Campaign]:
    """Run `inputs` of each target, or all in turns for some minutes, in as many processes as there are processors."""
    campaigns = [Campaign(target, seed, grow) for target in targets]
    end = time.monotonic() + 60 * minutes
    workers: list[tuple[Campaign, Worker, float]] = []
    try:
        while True:
            busy = [campaign for campaign, _, _ in workers]
            idle = [campaign for campaign in campaigns if campaign not in busy]
            ready = [one for one in idle if (one.index < inputs if inputs is not None else time.monotonic() < end)]
            if ready and len(workers) < (os.cpu_count() or 1):
                chosen = min(ready, key=lambda campaign: campaign.seconds)
                size = BATCH if inputs is None else min(BATCH, inputs - chosen.index)
                workers.append((chosen, Worker(chosen.batch(size)), time.monotonic()))
            elif not workers:
                return campaigns
            else:
                wait([worker.connection for _, worker, _ in workers], timeout=1)
                workers = [entry for each in workers for entry in _advanced(*each)]
    finally:
        for _, worker, _ in workers:
            worker.close()


def _advanced(campaign: Campaign, worker: Worker, started: float) -> list[tuple[Campaign, Worker, float]]:
    """The worker after its present answers; one for the rest of its batch, where it ended before."""
    while not worker.done and (result := worker.answer()) is not None:
        campaign.take(worker.batch, result)
    if not worker.done:
        return [(campaign, worker, started)]
    worker.close()
    batch = worker.batch
    if worker.next < batch.stop:
        rest = Batch(batch.target, batch.corpus, batch.seed, worker.next, batch.stop, batch.seen)
        return [(campaign, Worker(rest), started)]
    campaign.seconds += time.monotonic() - started
    return []


def table(campaigns: Sequence[Campaign]) -> str:
    """One row for each target: inputs, accepted, refused by code, findings, inputs a second."""
    head = ("target", "inputs", "accepted", "findings", "inputs/s", "corpus", "refused by code")
    rows = [head]
    for one in campaigns:
        total, refused = one.outcomes.total(), Counter({
            outcome.removeprefix("refused: "): count for outcome, count in one.outcomes.items() if "refused" in outcome
        })  # fmt: skip
        codes = ", ".join(f"{code} {count:,}" for code, count in refused.most_common())
        rate = f"{total / one.seconds:,.0f}" if one.seconds else ""
        numbers = (f"{total:,}", f"{one.outcomes[ACCEPTED]:,}", f"{one.found:,}", rate, f"{len(one.corpus):,}")
        rows.append((one.target.name, *numbers, codes))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:-1], widths[1:], strict=True)), row[-1]])
        for row in rows
    )


def save(campaigns: Sequence[Campaign], folder: Path) -> list[Path]:
    """Write the inputs of all findings, each with what was found and how to run it again."""
    written = []
    for campaign in campaigns:
        for kind, kept in campaign.findings.items():
            for result, data in kept:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{campaign.target.name}-{campaign.seed}-{result.index}.input"
                path.write_bytes(data)
                again = f"PYTHONPATH=tests .venv/bin/python -m fuzz --again {path}"
                report = f"{kind}\nseed {campaign.seed}, input {result.index}; again: {again}\n\n{result.details}\n"
                path.with_suffix(".txt").write_text(report)
                written.append(path)
    return written
