"""What can be wrong with a record of another program's launches, each kind of failure its own type."""

from __future__ import annotations

from typing import ClassVar

from kern.manifest.errors import KernError


class MiningError(KernError):
    """A record cannot be read or analysed."""

    code: ClassVar[str] = "mining"


class RecordMissing(MiningError):
    """There is no record at the path given, or it may not be read."""

    code: ClassVar[str] = "record-missing"
    exit_code: ClassVar[int] = 2


class BadRecord(MiningError):
    """A record's file does not have the form that the recorder writes."""

    code: ClassVar[str] = "bad-record"


class RecordTooLarge(MiningError):
    """A record holds more than is read: `kern.mining.limits` has the bounds."""

    code: ClassVar[str] = "record-too-large"


class ModuleMissing(MiningError):
    """A recorded module's file is not there, or is not the file that was recorded."""

    code: ClassVar[str] = "module-missing"
