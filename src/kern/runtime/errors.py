"""What a caller of a loaded executable can get wrong by name or by order."""

from __future__ import annotations

from collections.abc import Iterable

from kern.manifest.errors import KernError, variant


class CallError(KernError, exit_code=2):
    """A loaded executable is used wrongly."""


Closed = variant(CallError, "closed", "An executable or a graph is used after it was closed.", exit_code=1)
UnknownName = variant(CallError, "unknown-name", "There is no buffer, state or program with this name.")
NotWritable = variant(CallError, "not-writable", "The host may write inputs only.")
NotReadable = variant(CallError, "not-readable", "The host may not read this buffer: its memory may have been reused.")


def unknown(kind: str, name: str, names: Iterable[str]) -> CallError:
    """The error for a name that no `kind` has; `names` are those that there are."""
    return UnknownName(f"no {kind} is called {name!r}", f"there are: {', '.join(names) or 'none'}")
