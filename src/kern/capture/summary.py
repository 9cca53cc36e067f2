"""What a recording holds, counted: a scan of its lines that does not analyse them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kern.capture.errors import DumpUnusable

_RECORD = re.compile(rb'\{"record":"(\w+)"')
_KERNEL = re.compile(rb',"kernel":(\d+),')


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """Counts of one recorded process. `ended`: it came to a regular end; `log`: what recorder.log says."""

    folder: str
    command: tuple[str, ...]
    launches: int
    attributed: int
    kernels: int
    modules: int
    copies: int
    fills: int
    graphs: int
    graph_launches: int
    lost: int
    ended: bool
    log: tuple[str, ...]


def summarize(dump: Path) -> tuple[ProcessSummary, ...]:
    """One summary for each process in the order of their folders' names. A torn last line is left out.

    Raises DumpUnusable.
    """
    try:
        return tuple(_process(folder) for folder in sorted(dump.glob("pid-*")))
    except OSError as error:
        raise DumpUnusable(f"what was recorded in {dump} cannot be read: {error.strerror}", "see who may") from error


def _process(folder: Path) -> ProcessSummary:
    counts: Counter[str] = Counter()
    launches: Counter[int] = Counter()
    known: set[int] = set()
    command: tuple[str, ...] = ()
    for kind, line in _lines(folder / "launches.jsonl"):
        counts[kind] += 1
        if kind == "launch" and (number := _KERNEL.search(line)):
            launches[int(number[1])] += 1
        elif kind == "kernel":
            kernel: dict[str, Any] = json.loads(line)
            if kernel["module"] is not None:
                known.add(kernel["kernel"])
        elif kind == "process":
            command = tuple(json.loads(line)["command"])
    log = folder / "recorder.log"
    return ProcessSummary(
        folder=folder.name,
        command=command,
        launches=counts["launch"],
        attributed=sum(count for number, count in launches.items() if number in known),
        kernels=counts["kernel"],
        modules=sum(1 for _ in (folder / "modules").glob("*.cubin")),
        copies=counts["copy"],
        fills=counts["fill"],
        graphs=counts["graph"],
        graph_launches=counts["graph_launch"],
        lost=counts["lost"],
        ended=counts["end"] > 0,
        log=tuple(log.read_text(errors="replace").splitlines()) if log.is_file() else (),
    )


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            record = _RECORD.match(line)
            if record is not None and line.endswith(b"\n"):
                yield record[1].decode(), line
