"""Recording what a CUDA program runs: a C library inside the program, and the command that puts it there."""

from kern.capture.command import run_recorded
from kern.capture.errors import CaptureError
from kern.capture.library import recorder_library
from kern.capture.summary import ProcessSummary, summarize

__all__ = [
    "CaptureError",
    "ProcessSummary",
    "recorder_library",
    "run_recorded",
    "summarize",
]
