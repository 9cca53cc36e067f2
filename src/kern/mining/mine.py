"""The whole analysis: from a recording to its passes, token counts and call sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kern.mining.blocks import repeated
from kern.mining.call_sites import Number, Site, Unaligned, align
from kern.mining.events import Event, Launch
from kern.mining.expression_fit import Fit
from kern.mining.layouts import complete
from kern.mining.pass_boundaries import divide
from kern.mining.passes import Pass
from kern.mining.pointers import PointerUse, classify
from kern.mining.recording import Recording, read_recordings
from kern.mining.segmentation import Span, find_cores
from kern.mining.token_count import Reference, choose, fit_number


@dataclass(frozen=True, slots=True)
class FittedNumber(Number):
    """A number of a call site, and the expression in tokens that gives it."""

    fit: Fit


@dataclass(frozen=True, slots=True, eq=False)
class CallSite(Site):
    """A call site with what was found about it."""

    numbers: tuple[FittedNumber, ...]
    pointers: tuple[PointerUse, ...]


@dataclass(frozen=True, slots=True)
class MinedProcess:
    """The analysis of one process. `unaligned` are the passes that were left out of some call sites."""

    recording: Recording
    passes: tuple[Pass, ...]
    reference: Reference | None
    sites: tuple[CallSite, ...]
    unaligned: tuple[Unaligned, ...]


@dataclass(frozen=True, slots=True)
class Mined:
    """The analysis of a recording, process by process, in the order of their folders' names.

    `unrecorded` are the folders of processes in which recording could not start; their recorder.log says why.
    """

    processes: tuple[MinedProcess, ...]
    unrecorded: tuple[Path, ...]

    @property
    def main(self) -> MinedProcess:
        """The process with the most launches in passes; with the most launches, where no process has any pass."""
        return max(
            self.processes, key=lambda p: (sum(len(each.launches) for each in p.passes), len(p.recording.events))
        )


def mine(dump: Path) -> Mined:
    """Read and analyse a recording: the folder of `kern capture`, or one process's folder in it.

    Raises RecordMissing and BadRecord.
    """
    recordings, unrecorded = read_recordings(dump)
    return Mined(tuple(_process(complete(recording)) for recording in recordings), unrecorded)


def _process(recording: Recording) -> MinedProcess:
    """Find the passes, then their token counts, then their boundaries, and then their call sites."""
    events = recording.events
    cores = find_cores(events)
    rough = choose(align(_launches(events, cores))[0], len(cores))
    spans = divide(events, cores, rough.chosen.tokens if rough else (None,) * len(cores))
    sites, unaligned = align(_launches(events, spans))
    reference = choose(sites, len(spans))
    passes = _passes(events, spans, reference.chosen.tokens if reference else (None,) * len(spans))
    return MinedProcess(recording, passes, reference, _call_sites(sites, passes), unaligned)


def _launches(events: Sequence[Event], spans: Sequence[Span]) -> list[list[Launch]]:
    return [[event for event in events[start:stop] if isinstance(event, Launch)] for start, stop in spans]


def _passes(events: Sequence[Event], spans: Sequence[Span], tokens: Sequence[int | None]) -> tuple[Pass, ...]:
    """The passes; those whose blocks launch the same kernels are of one variant."""
    variants: dict[frozenset[tuple[str, str]], int] = {}
    passes = []
    for index, (start, stop) in enumerate(spans):
        launched = [event.kernel.key for event in events[start:stop] if isinstance(event, Launch)]
        block = repeated(launched)
        inside = launched if block is None else launched[block.first : block.first + block.period]
        variant = variants.setdefault(frozenset(inside), len(variants))
        passes.append(Pass(index, tokens[index], variant, block, tuple(events[start:stop])))
    return tuple(passes)


def _call_sites(sites: Sequence[Site], passes: Sequence[Pass]) -> tuple[CallSite, ...]:
    """The numbers of each site as expressions in the token counts of its passes, and its pointers."""
    tokens = [each.tokens for each in passes]
    pointers = classify(sites, passes)

    def fitted(site: Site, number: Number) -> FittedNumber:
        return FittedNumber(number.name, number.type, number.values, fit_number(number, site.passes, tokens))

    return tuple(
        CallSite(
            site.kernel,
            site.occurrence,
            site.count,
            site.passes,
            site.launches,
            tuple(fitted(site, number) for number in site.given_numbers()),
            pointers[site],
        )
        for site in sites
    )
