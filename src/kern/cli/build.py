"""`kern build`: run a provider's generator, with progress."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.cli.terminal import Progress, bar, binary, printable
from kern.manifest.counts import counted


class _Stages:
    """One bar for each stage of a build, the one before closed."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources
        self._stage = ""
        self._bar: Progress = lambda done, total: None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._resources.close()
            self._stage = stage
            self._bar = self._resources.enter_context(bar(stage))
        self._bar(done, total)


def build_folder(options: BuildOptions, output: Path, force: bool) -> None:
    """Build; print notes and warnings, then what was written."""
    start = time.perf_counter()
    with ExitStack() as resources:
        built = build(options, output, force=force, progress=_Stages(resources))
    for note in built.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    for warning in built.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    programs, kernels = counted(len(built.manifest.programs), "program"), counted(len(built.manifest.kernels), "kernel")
    size = f"{binary(built.weight_bytes)} of weights" if options.weights else "no weights"
    seconds = time.perf_counter() - start
    print(
        f"{printable(str(output))}: for {built.target}, {programs}, {kernels}, {size}, {seconds:.1f} s",
        file=sys.stderr,
    )
