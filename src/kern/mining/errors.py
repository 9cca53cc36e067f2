"""The errors of reading and analysing a recording."""

from __future__ import annotations

from kern.manifest.errors import KernError, variant


class MiningError(KernError):
    """A recording cannot be read or analysed."""


RecordMissing = variant(MiningError, "record-missing", "There is no recording at the path.", exit_code=2)
BadRecord = variant(MiningError, "bad-record", "A file of a recording is not as the recorder writes it.")
RecordTooLarge = variant(MiningError, "record-too-large", "A recording exceeds the bounds of `kern.mining.limits`.")
ModuleMissing = variant(MiningError, "recorded-module-missing", "A recorded module is missing or has changed.")
