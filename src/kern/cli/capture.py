"""`kern capture`: run a command with the recorder in it, and say on stderr what was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from kern.capture import ProcessSummary, find_toolkit, recorder_library, run_recorded, summarize
from kern.capture.errors import NothingRecorded
from kern.cli.terminal import printable
from kern.models.kernels.compile_host import compiler_command

_SHOWN_LOG_LINES = 5


def capture(command: list[str], dump: Path) -> int:
    """Run the command, recorded; its own exit status. Raises CaptureError, CompilerMissing."""
    toolkit = find_toolkit()
    library = recorder_library(toolkit, compiler_command())
    status = run_recorded(command, dump, library, toolkit.library)
    processes = summarize(dump)
    for process in processes:
        for line in _told(process):
            print(f"kern: {printable(line)}", file=sys.stderr)
    if status == 0 and not any(process.launches or process.graph_launches for process in processes):
        raise NothingRecorded(*_why_nothing(processes, dump))
    return status


def _told(process: ProcessSummary) -> list[str]:
    share = f", {process.attributed / process.launches:.2%} with their module" if process.launches else ""
    lines = [
        f"{process.folder}: {' '.join(process.command)}",
        f"  {process.launches:,} launches of {process.kernels:,} kernels{share}; {process.modules:,} modules",
        f"  {process.copies:,} copies, {process.fills:,} fills, {process.graphs:,} graphs launched "
        f"{process.graph_launches:,} times; {process.lost:,} not recorded",
    ]
    if not process.ended:
        lines.append("  the recording has no end: the process was killed, ended by _exit, or its log says why")
    lines += [f"  log: {line}" for line in process.log[:_SHOWN_LOG_LINES]]
    if len(process.log) > _SHOWN_LOG_LINES:
        lines.append(f"  log: and {len(process.log) - _SHOWN_LOG_LINES:,} lines more in {process.folder}/recorder.log")
    return lines


def _why_nothing(processes: tuple[ProcessSummary, ...], dump: Path) -> tuple[str, str]:
    if not processes:
        return f"nothing was recorded in {dump}: no process of the command initialised CUDA", ""
    if any(process.log for process in processes):
        return f"nothing was recorded in {dump}: the recorder could not start", "its log above says why"
    return f"nothing was recorded in {dump}: CUDA was initialised, and nothing was launched", ""
