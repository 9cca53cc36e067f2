"""The time that each launch of a program takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kern.manifest.types import Manifest


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a program: its label, the kernel entry and step it comes from, and the seconds it took."""

    label: str
    kernel: str
    step: int
    seconds: float


def launch_times(
    manifest: Manifest, program: str, labels: Sequence[str], seconds: Sequence[float]
) -> tuple[LaunchTime, ...]:
    """The launches of `program` in the order in which it is lowered, each with its label and time."""
    return tuple(
        LaunchTime(label, kernel, step, taken)
        for (kernel, step), label, taken in zip(_steps(manifest, program), labels, seconds, strict=True)
    )


def _steps(manifest: Manifest, program: str) -> Iterator[tuple[str, int]]:
    for dispatch in manifest.programs[program].dispatches:
        for step in range(len(manifest.kernels[dispatch.kernel].impl.steps)):
            yield dispatch.kernel, step
