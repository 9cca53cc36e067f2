"""Running the command line in this process: its exit code, stdout and stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kern.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.out)


Kern = Callable[..., Done]


@pytest.fixture
def kern(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kern:
    """Call it as the shell would: kern("verify", path). A traceback would fail the test."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["kern", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return call
