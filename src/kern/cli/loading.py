"""Loading for the commands that run something, and what they say about it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kern.artifact.errors import FolderReplaced
from kern.cli.terminal import bar, binary, printable, wrapped
from kern.contracts.text import TextSettings
from kern.manifest.counts import counted
from kern.runtime.executable import Executable
from kern.runtime.loading import load


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the commands let a user choose about loading."""

    device: str
    capacity: int
    weights: Path | None = None
    check: bool = False
    tune: bool = False
    quiet: bool = False

    def fitting(self, settings: TextSettings) -> LoadOptions:
        """These, with no more capacity than the model can use; what it cannot is said on stderr."""
        if self.capacity <= settings.positions:
            return self
        most = counted(settings.positions, "token")
        self.note(f"the capacity is {most}, all that the model has positions for")
        return replace(self, capacity=settings.positions)

    def note(self, text: str) -> None:
        """Say something on stderr that is not an error, unless nothing else is to be said."""
        if not self.quiet:
            print(f"note: {text}", file=sys.stderr)


@contextmanager
def loaded(
    path: Path, options: LoadOptions, before: tuple[int, int] | None = None
) -> Iterator[tuple[Executable, float]]:
    """The executable and the seconds that loading took; an invalid artifact's diagnostics are shown.

    `before` is which folder was there when its tokenizer was read: it and the weights must be of one build. Raises
    FolderReplaced where another is there now.
    """
    start = time.perf_counter()
    with bar("loading", quiet=options.quiet) as progress:
        executable = load(
            path,
            device=options.device,
            capacity=options.capacity,
            weights=options.weights,
            check=options.check,
            tune=options.tune,
            progress=progress,
        )
    with executable:
        if before is not None and which_folder(path) != before:
            raise FolderReplaced(f"{path} was replaced while it was loaded", "start again")
        if options.tune and not executable.device.chooses_algorithms:
            name = executable.device.name
            options.note(f"nothing to tune: device {name} has one algorithm for each operator")
        yield executable, time.perf_counter() - start


def which_folder(path: Path) -> tuple[int, int]:
    """Which folder is at a path; (0, 0) for none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_dev, status.st_ino


def report(
    executable: Executable, seconds: float, options: LoadOptions, graphs: Sequence[tuple[str, int]] = ()
) -> None:
    """A few lines on stderr: what was loaded, from where, how large; `graphs` are programs with their tokens."""
    if options.quiet:
        return
    manifest, plan = executable.manifest, executable.memory_plan
    classes = Counter(buffer.class_ for buffer in manifest.buffers.values())
    externs = sum(step.extern is not None for kernel in manifest.kernels.values() for step in kernel.impl.steps)
    symbols = ", ".join(f"{name} {symbol.min}…{symbol.max}" for name, symbol in manifest.symbols.items())
    states = ", ".join(f"{name} {binary(size)}" for name, size in plan.sizes.states.items())
    programs = ", ".join(f"{name} ({len(program.dispatches)})" for name, program in manifest.programs.items())
    lines = {
        manifest.meta.model: f"on {executable.device.name}: {executable.device.description}",
        "symbols": symbols or "none",
        "states": states or "none",
        "buffers": ", ".join(f"{count} {name}" for name, count in classes.items()),
        "kernels": f"{len(manifest.kernels)} in {counted(len(executable.resolution.modules), 'file')}"
        + (f", {counted(externs, 'step')} built in" if externs else ""),
        "programs": programs,
        "graphs": ", ".join(f"{program} of {tokens}" for program, tokens in graphs) or "none",
        "memory": f"weights {binary(plan.weights)}, states {binary(plan.states.size)}, inputs and outputs "
        f"{binary(plan.io.size)}, workspace {binary(plan.workspace.size)}; loaded in {seconds:.2f} s",
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        print(wrapped(f"{printable(name):>{width}}  {printable(text)}", width + 2), file=sys.stderr)
    print(file=sys.stderr)
