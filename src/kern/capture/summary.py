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
_KERNEL = re.compile(rb',"kernel":(\d{1,20}),')
_MAX_LINE = 2**23
"""Longer lines are not the recorder's, and are left out; `kern mine` refuses them."""
_MAX_LOG = 2**20


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """Counts of one recorded process. `ended`: it ended regularly; `log`: what recorder.log says."""

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
            kernel = _object(line)
            if isinstance(kernel.get("module"), str) and isinstance(kernel.get("kernel"), int):
                known.add(kernel["kernel"])
        elif kind == "process":
            words = _object(line).get("command")
            command = tuple(map(str, words)) if isinstance(words, list) else ()
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
        log=_log(folder / "recorder.log"),
    )


def _object(line: bytes) -> dict[str, Any]:
    """A line's fields, none where it is not an object: the recorded program may have written into its own record."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _log(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    with path.open("rb") as file:
        return tuple(file.read(_MAX_LOG).decode(errors="replace").splitlines())


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(_MAX_LINE):
            record = _RECORD.match(line)
            if record is not None and line.endswith(b"\n"):
                yield record[1].decode(), line
