"""The errors of reading and analysing a recording."""

from __future__ import annotations

from typing import ClassVar

from kern.manifest.errors import KernError


class MiningError(KernError):
    """A recording cannot be read or analysed."""

    code: ClassVar[str] = "mining"


class RecordMissing(MiningError):
    """There is no recording at the given path, or it may not be read."""

    code: ClassVar[str] = "record-missing"
    exit_code: ClassVar[int] = 2


class BadRecord(MiningError):
    """A recording's file does not have the form that the recorder writes."""

    code: ClassVar[str] = "bad-record"


class RecordTooLarge(MiningError):
    """A recording is larger than `kern.mining.limits` allows."""

    code: ClassVar[str] = "record-too-large"


class ModuleMissing(MiningError):
    """A recorded module's file is not there, or is not the file that was recorded."""

    code: ClassVar[str] = "module-missing"
