"""The errors of recording a program."""

from __future__ import annotations

from kern.manifest.errors import KernError, variant


class CaptureError(KernError, exit_code=2):
    """A program cannot be recorded."""


RecorderNotBuilt = variant(CaptureError, "recorder-not-built", "The recorder cannot be compiled, or not be stored.")
DumpUnusable = variant(CaptureError, "dump-unusable", "The output folder is not empty, or cannot be written.")
CommandNotStarted = variant(CaptureError, "command-not-started", "The command to record cannot be started.")
InjectionTaken = variant(CaptureError, "injection-taken", "CUDA_INJECTION64_PATH is set: libcuda loads one tool only.")
NothingRecorded = variant(CaptureError, "nothing-recorded", "The command ran, but launched no kernels.", exit_code=1)
