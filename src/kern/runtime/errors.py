"""Errors in the use of a loaded executable: unknown names, and calls that its state does not allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kern.manifest.errors import KernError


class Closed(KernError):
    """An executable or a graph is used after `close`."""

    code: ClassVar[str] = "closed"


class UnknownName(KernError):
    """A buffer, state or program that the manifest does not declare."""

    code: ClassVar[str] = "unknown-name"
    exit_code: ClassVar[int] = 2


class NotWritable(KernError):
    """The host may write only inputs."""

    code: ClassVar[str] = "not-writable"
    exit_code: ClassVar[int] = 2


class NotReadable(KernError):
    """A buffer that the host cannot read: other buffers may share its memory."""

    code: ClassVar[str] = "not-readable"
    exit_code: ClassVar[int] = 2


def unknown(kind: str, name: str, names: Iterable[str]) -> UnknownName:
    """The error for an unknown name of a `kind`; `names` are those that are declared."""
    declared = ", ".join(names)
    return UnknownName(
        f"unknown {kind} {name!r}", f"the {kind}s are: {declared}" if declared else f"the manifest declares no {kind}s"
    )
