"""Loading for the commands that run an artifact, and their report of what was loaded."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from kern.artifact.folder import open_folder
from kern.cli.terminal import bar, binary, printable, wrapped
from kern.engine.model import TextModel, open_model
from kern.manifest.counts import counted
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text.tokenizer import Tokenizer

Loaded = TypeVar("Loaded", Executable, TextModel)
Prepared = TypeVar("Prepared")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of loading."""

    device: str
    capacity: int
    weights: Path | None = None
    check: bool = False
    tune: bool = False
    quiet: bool = False
    pool_tokens: int | None = None

    def note(self, text: str) -> None:
        """Print a note on stderr, unless the command is quiet."""
        if not self.quiet:
            print(f"note: {text}", file=sys.stderr)


@contextmanager
def loaded(path: Path, options: LoadOptions) -> Iterator[tuple[Executable, float]]:
    """The executable, and the seconds that loading took."""
    executable, seconds = _load(partial(load, path), options)
    with executable:
        yield executable, seconds


@contextmanager
def loaded_model(
    path: Path, options: LoadOptions, prepare: Callable[[Tokenizer], Prepared]
) -> Iterator[tuple[TextModel, Prepared, float]]:
    """The text model, the result of `prepare`, and the seconds that loading took.

    `prepare` is called with the tokenizer before the weights are loaded, so that its errors are reported at once.
    """
    with open_folder(path) as folder:
        tokenizer = Tokenizer.load(folder)
        prepared = prepare(tokenizer)
        if options.capacity > tokenizer.settings.positions:
            most = counted(tokenizer.settings.positions, "token")
            options.note(f"the capacity is {most}, the positions of the model")
        model, seconds = _load(partial(open_model, folder, tokenizer=tokenizer), options)
    with model:
        yield model, prepared, seconds


def _load(load: Callable[..., Loaded], options: LoadOptions) -> tuple[Loaded, float]:
    start = time.perf_counter()
    with bar("loading", quiet=options.quiet) as progress:
        loaded = load(
            device=options.device,
            capacity=options.capacity,
            pool_tokens=options.pool_tokens,
            weights=options.weights,
            check=options.check,
            tune=options.tune,
            progress=progress,
        )
    device = (loaded.executable if isinstance(loaded, TextModel) else loaded).device
    if options.tune and not device.chooses_algorithms:
        options.note(f"nothing to tune: device {device.name} has one algorithm for each operator")
    return loaded, time.perf_counter() - start


def report(
    executable: Executable, seconds: float, options: LoadOptions, graphs: Sequence[tuple[str, int]] = ()
) -> None:
    """Print a summary of what was loaded on stderr; `graphs` are programs with their numbers of tokens."""
    if options.quiet:
        return
    manifest, plan = executable.manifest, executable.memory_plan
    classes = Counter(buffer.class_ for buffer in manifest.buffers.values())
    operators = sum(step.operator is not None for kernel in manifest.kernels.values() for step in kernel.impl.steps)
    symbols = ", ".join(f"{name} {symbol.min}…{symbol.max}" for name, symbol in manifest.symbols.items())
    states = ", ".join(f"{name} {binary(size)}" for name, size in plan.sizes.states.items())
    programs = ", ".join(f"{name} ({len(program.dispatches)})" for name, program in manifest.programs.items())
    lines = {
        manifest.meta.model: f"on {executable.device.name}: {executable.device.description}",
        "symbols": symbols or "none",
        "states": states or "none",
        "buffers": ", ".join(f"{count} {name}" for name, count in classes.items()),
        "kernels": f"{len(manifest.kernels)} in {counted(len(executable.resolution.modules), 'file')}"
        + (f", {counted(operators, 'step')} built in" if operators else ""),
        "programs": programs,
        "graphs": ", ".join(f"{program} of {tokens}" for program, tokens in graphs) or "none",
        "memory": f"weights {binary(plan.weights)}, states {binary(plan.states.size)}, inputs and outputs "
        f"{binary(plan.io.size)}, workspace {binary(plan.workspace.size)}; loaded in {seconds:.2f} s",
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        print(wrapped(f"{printable(name):>{width}}  {printable(text)}", width + 2), file=sys.stderr)
    print(file=sys.stderr)
