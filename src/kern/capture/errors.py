"""The errors of recording a program."""

from __future__ import annotations

from typing import ClassVar

from kern.manifest.errors import KernError


class CaptureError(KernError):
    """A program cannot be recorded."""

    code: ClassVar[str] = "capture"
    exit_code: ClassVar[int] = 2


class RecorderNotBuilt(CaptureError):
    """The recorder could not be compiled, or not kept."""

    code: ClassVar[str] = "recorder-not-built"


class DumpUnusable(CaptureError):
    """The folder for the recording is not empty, or cannot be written."""

    code: ClassVar[str] = "dump-unusable"


class CommandNotStarted(CaptureError):
    """The command to record cannot be started."""

    code: ClassVar[str] = "command-not-started"


class InjectionTaken(CaptureError):
    """CUDA_INJECTION64_PATH is set: another tool is inside the program already, and libcuda loads one only."""

    code: ClassVar[str] = "injection-taken"


class NothingRecorded(CaptureError):
    """The command ran, and nothing of it was recorded."""

    code: ClassVar[str] = "nothing-recorded"
    exit_code: ClassVar[int] = 1
