"""For tests that start processes: one that does not outlive its test, and one family of models."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

ONE_FAMILY = pytest.mark.parametrize("tiny", ["llama"], indirect=True)


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed if the body leaves it running, so that a test that fails does not hang."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
