"""A fault before its place is complete: rules below a dispatch need not know which one they are in."""

from __future__ import annotations

from dataclasses import dataclass

from kern.manifest.diagnostics import Code, Diagnostic, Path


@dataclass(frozen=True, slots=True)
class Found:
    """A fault at a path relative to its dispatch."""

    code: Code
    path: Path
    message: str
    help: str

    def under(self, parent: Path) -> Diagnostic:
        """The diagnostic, its path made whole."""
        return self.code.at((*parent, *self.path), self.message, self.help)

    def within(self, parent: Path) -> Found:
        """The same fault, its path from further up."""
        return Found(self.code, (*parent, *self.path), self.message, self.help)
