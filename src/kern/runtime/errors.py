"""Errors in the use of a loaded executable: unknown names, and calls that its state does not allow."""

from __future__ import annotations

from collections.abc import Iterable

from kern.manifest.errors import KernError, variant


class CallError(KernError, exit_code=2):
    """A loaded executable is used wrongly."""


Closed = variant(CallError, "closed", "An executable or a graph is used after it was closed.", exit_code=1)
UnknownName = variant(CallError, "unknown-name", "There is no buffer, state or program with this name.")
NotWritable = variant(CallError, "not-writable", "The host may write inputs only.")
NotReadable = variant(CallError, "not-readable", "The host may not read this buffer: its memory may have been reused.")
WrongSequence = variant(CallError, "wrong-sequence", "A state has no block for this sequence.")


def unknown(kind: str, name: str, names: Iterable[str]) -> CallError:
    """The error for an unknown name of a `kind`; `names` are those that are declared."""
    declared = ", ".join(names)
    return UnknownName(
        f"unknown {kind} {name!r}", f"the {kind}s are: {declared}" if declared else f"the manifest declares no {kind}s"
    )
