"""`kern capture`: run a command with the recorder in it, and print on stderr what was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

from kern.capture import ProcessSummary, recorder_library, run_recorded, summarize
from kern.capture.errors import NothingRecorded
from kern.cli.errors import show
from kern.cli.terminal import printable
from kern.manifest.counts import counted
from kern.toolchain.cc import compiler_command
from kern.toolchain.cuda_headers import find_toolkit

_SHOWN_LOG_LINES = 5
_SHOWN_COMMAND = 160
_NO_GPU = "record a program that uses CUDA; `kern doctor` says whether there is a driver and a device"


def capture(command: list[str], dump: Path) -> int:
    """Run the command, recorded; its own exit status. Raises CaptureError, NoCacheFolder, CompilerMissing."""
    toolkit = find_toolkit()
    library = recorder_library(toolkit, compiler_command())
    status = run_recorded(command, dump, library, toolkit.library)
    processes = summarize(dump)
    for process in processes:
        _print(_described(process))
    if not any(process.launches or process.graph_launches for process in processes):
        nothing = NothingRecorded(*_why_nothing(processes, dump))
        if status == 0:
            raise nothing
        show(nothing, as_json=False)
    return status


def _print(lines: list[str]) -> None:
    for line in lines:
        print(f"kern: {printable(line)}", file=sys.stderr)


def _described(process: ProcessSummary) -> list[str]:
    share = f", {process.attributed / process.launches:.2%} with their module" if process.launches else ""
    lines = [
        f"{process.folder}: {_shortened(' '.join(process.command))}",
        f"  {counted(process.launches, 'launch')} of {counted(process.kernels, 'kernel')}{share}; "
        f"{counted(process.modules, 'module')}",
        f"  {process.copies:,} copies, {counted(process.fills, 'fill')}, {counted(process.graphs, 'graph')} "
        f"with {counted(process.graph_launches, 'launch')}; {process.lost:,} not recorded",
    ]
    if not process.ended:
        lines.append(
            "  no end was recorded: the process is still running, was killed, called _exit, or its log says why"
        )
    lines += [f"  log: {line}" for line in process.log[:_SHOWN_LOG_LINES]]
    if len(process.log) > _SHOWN_LOG_LINES:
        lines.append(f"  log: {len(process.log) - _SHOWN_LOG_LINES:,} more in {process.folder}/recorder.log")
    return lines


def _shortened(command: str) -> str:
    return command if len(command) <= _SHOWN_COMMAND else f"{command[:_SHOWN_COMMAND]}…"


def _why_nothing(processes: tuple[ProcessSummary, ...], dump: Path) -> tuple[str, str]:
    nothing = f"nothing was recorded in {dump}"
    if not processes:
        return f"{nothing}: no process of the command initialised CUDA with the recorder in it", _NO_GPU
    if any(process.log for process in processes):
        return f"{nothing}: the recorder could not start, or had to stop", "its log above says why"
    return f"{nothing}: CUDA was initialised, and nothing was launched", ""
