"""Diagnostics as a compiler shows them: code, location, the line, help; or as JSON."""

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

    diagnostic = located.diagnostic
    name = report.path / "manifest.json" if report.path.is_dir() else report.path
    gutter = " " * len(str(located.line))
    console.print(f"[bold red]error\\[{diagnostic.code}][/]: [bold]{escape(printable(diagnostic.message))}[/]")
    location = f"{printable(str(name))}:{located.line}:{located.column}"
    pointer = f"  [dim]{escape(printable(diagnostic.pointer))}[/]" if diagnostic.pointer else ""
    console.print(f"{gutter}[blue]-->[/] {escape(location)}{pointer}")
    line = report.source.line(located.line)
    if line.strip():
        excerpt, indent, carets = _excerpt(report, located, line, width - len(gutter) - 4)
        console.print(f"{gutter} [blue]|[/]")
        console.print(f"[blue]{located.line} |[/] {escape(excerpt)}")
        console.print(f"{gutter} [blue]|[/] {indent}[bold red]{carets}[/]")
    console.print(f"{gutter} [blue]=[/] help: {escape(printable(diagnostic.help))}\n")


def _excerpt(report: Report, located: Located, line: str, room: int) -> tuple[str, str, str]:
    """The part of the line around the location that fits, and the marks under it, in terminal cells."""
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
    """The length of the diagnostic's value or key in its line, in code points."""
    diagnostic = located.diagnostic
    if diagnostic.offset is not None:
        return 1
    spans = report.source.spans.get(diagnostic.path, ())
    if not spans:
        return 1
    span = spans[min(diagnostic.occurrence, len(spans) - 1)]
    if diagnostic.anchor == "key" and span.key is not None:
        return len(json.dumps(diagnostic.path[-1], ensure_ascii=False))
    return span.end - span.start
