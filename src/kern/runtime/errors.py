"""What a caller of a loaded executable can get wrong by name or by order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kern.manifest.errors import KernError


class Closed(KernError):
    """An executable or a graph is used after its end."""

    code: ClassVar[str] = "closed"


class UnknownName(KernError):
    """No buffer, state or program of that name."""

    code: ClassVar[str] = "unknown-name"
    exit_code: ClassVar[int] = 2


class NotWritable(KernError):
    """The host may write inputs only."""

    code: ClassVar[str] = "not-writable"
    exit_code: ClassVar[int] = 2


class NotReadable(KernError):
    """The buffer is not meant for the host, and its bytes may be another's by now."""

    code: ClassVar[str] = "not-readable"
    exit_code: ClassVar[int] = 2


def unknown(kind: str, name: str, names: Iterable[str]) -> UnknownName:
    """The error for a name that no `kind` has; `names` are those that there are."""
    return UnknownName(f"no {kind} is called {name!r}", f"there are: {', '.join(names) or 'none'}")
