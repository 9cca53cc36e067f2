"""The result of verification: diagnostics with their locations in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kern.manifest.diagnostics import Diagnostic
from kern.manifest.errors import KernError
from kern.manifest.source import Source


@dataclass(frozen=True, slots=True)
class Located:
    """A diagnostic and its location in the file: line and column, both from 1, in code points."""

    diagnostic: Diagnostic
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Report:
    """The diagnostics of `path`, in the order of the file. `source` is the text that they point into."""

    path: Path
    diagnostics: tuple[Located, ...]
    source: Source = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there are no diagnostics."""
        return not self.diagnostics


class InvalidArtifact(KernError, code="invalid-artifact"):
    """An artifact does not verify; `report` has every error."""

    def __init__(self, report: Report, weights: Path | None = None) -> None:
        """`weights` is the weights file that replaced the folder's."""
        first, *others = report.diagnostics
        rest = f", and {len(others)} more" if others else ""
        error = first.diagnostic
        option = "" if weights is None else f" --weights {weights}"
        super().__init__(
            f"{report.path} does not verify: {error.code} at line {first.line}, column {first.column}: "
            f"{error.message}{rest}",
            f"`kern verify {report.path}{option}` shows every error",
        )
        self.report = report


def locate(path: Path, source: Source, diagnostics: Sequence[Diagnostic]) -> Report:
    """The report on the file at `path`, in the order of its text."""
    locations = [source.locate(diagnostic) for diagnostic in diagnostics]
    located = [Located(each, at.line, at.column) for each, at in zip(diagnostics, locations, strict=True)]
    return Report(path, tuple(sorted(located, key=lambda one: (one.line, one.column))), source)
