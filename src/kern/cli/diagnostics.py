"""Diagnostics as a compiler shows them: code, place, the offending line, help; or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from kern.cli.terminal import printable
from kern.manifest.counts import counted
from kern.verification.report import Located, Report

SHOWN = 50
"""Diagnostics shown in full; the rest are counted. `--json` holds them all."""


def as_dict(report: Report) -> dict[str, Any]:
    """The report as the value of a JSON object."""
    found: list[dict[str, Any]] = [
        {
            "code": located.diagnostic.code,
            "severity": located.diagnostic.severity,
            "pointer": located.diagnostic.pointer,
            "line": located.line,
            "column": located.column,
            "message": located.diagnostic.message,
            "help": located.diagnostic.help,
        }
        for located in report.diagnostics
    ]
    return {"ok": report.ok, "path": str(report.path), "diagnostics": found}


def show(report: Report) -> None:
    """Print every diagnostic on stderr, in colour where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    width = max(shutil.get_terminal_size((120, 24)).columns, 60)
    for located in report.diagnostics[:SHOWN]:
        _show_one(console, report, located, width)
    hidden = len(report.diagnostics) - SHOWN
    more = f" ({hidden} not shown: --json has them all)" if hidden > 0 else ""
    count = len(report.diagnostics)
    sys.stderr.flush()
    console.print(f"[bold red]{counted(count, 'error')}[/]{more}")


def _show_one(console: Any, report: Report, located: Located, width: int) -> None:
    from rich.markup import escape

    fault = located.diagnostic
    name = report.path / "manifest.json" if report.path.is_dir() else report.path
    gutter = " " * len(str(located.line))
    console.print(f"[bold red]error\\[{fault.code}][/]: [bold]{escape(printable(fault.message))}[/]")
    place = f"{printable(str(name))}:{located.line}:{located.column}"
    pointer = f"  [dim]{escape(printable(fault.pointer))}[/]" if fault.pointer else ""
    console.print(f"{gutter}[blue]-->[/] {escape(place)}{pointer}")
    line = report.source.line(located.line)
    if line.strip():
        excerpt, indent, carets = _excerpt(report, located, line, width - len(gutter) - 4)
        console.print(f"{gutter} [blue]|[/]")
        console.print(f"[blue]{located.line} |[/] {escape(excerpt)}")
        console.print(f"{gutter} [blue]|[/] {indent}[bold red]{carets}[/]")
    console.print(f"{gutter} [blue]=[/] help: {escape(printable(fault.help))}\n")


def _excerpt(report: Report, located: Located, line: str, room: int) -> tuple[str, str, str]:
    """The part of the line around the place that fits, and the marks under it, in terminal cells."""
    from rich.cells import cell_len

    start = located.column - 1
    end = max(start + 1, min(start + _length(report, located), len(line)))
    first = 0 if end <= room - 4 else max(0, min(start - 20, end - room + 24))
    lead = "… " if first else ""
    tail = " …" if len(line) - first > room - len(lead) else ""
    text = printable(line[first : first + room - len(lead) - len(tail)])
    before, marked = text[: start - first], text[start - first : end - first]
    return lead + text + tail, " " * cell_len(lead + before), "^" * max(cell_len(marked), 1)


def _length(report: Report, located: Located) -> int:
    """How many code points of its line the diagnostic's value or key takes."""
    fault = located.diagnostic
    if fault.offset is not None:
        return 1
    places = report.source.spans.get(fault.path, ())
    if not places:
        return 1
    place = places[min(fault.occurrence, len(places) - 1)]
    if fault.anchor == "key" and place.key is not None:
        return len(json.dumps(fault.path[-1], ensure_ascii=False))
    return place.end - place.start
