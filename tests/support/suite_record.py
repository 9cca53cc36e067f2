"""A record of a test run: when, where and of what, and what became of each suite's tests, as JSON.

`pytest --record FILE` writes it; `make test-gpu` asks for it. A suite is a file of tests.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from about import about

OUTCOMES = ("passed", "failed", "skipped")


class SuiteRecord:
    """A pytest plugin: counts what becomes of each test, and writes the record when the run ends."""

    def __init__(self, path: Path, command: Sequence[str]) -> None:
        self._path = path
        self._worst: dict[str, str] = {}
        self._started, self._about = time.monotonic(), about(command)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has three reports: it passed if its call did and neither setup nor teardown failed."""
        before = self._worst.get(report.nodeid)
        if report.failed:
            self._worst[report.nodeid] = "failed"
        elif before != "failed" and (report.skipped or (report.when == "call" and before is None)):
            self._worst[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure of its suite, one that is skipped as a whole a skip."""
        if report.failed or report.skipped:
            self._worst[report.nodeid] = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record under another name and rename it."""
        record = {
            **self._about,
            "exit_status": int(exitstatus),
            "duration_s": round(time.monotonic() - self._started, 1),
            **counts(self._worst),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f".{self._path.name}.part")
        part.write_text(json.dumps(record, indent=1) + "\n")
        part.replace(self._path)


def counts(outcomes: Mapping[str, str]) -> dict[str, Any]:
    """From what became of each test: how many passed, failed and were skipped, in all and in each suite."""
    suites: dict[str, Counter[str]] = {}
    for test, outcome in outcomes.items():
        suites.setdefault(test.partition("::")[0].removeprefix("tests/"), Counter())[outcome] += 1
    total = sum(suites.values(), Counter())
    return {
        "total": {outcome: total[outcome] for outcome in OUTCOMES},
        "suites": {suite: {outcome: found[outcome] for outcome in OUTCOMES} for suite, found in sorted(suites.items())},
    }


def add_option(parser: pytest.Parser) -> None:
    """The option `--record`."""
    parser.addoption("--record", metavar="FILE", type=Path, help="write a record of the run to FILE, as JSON")


def register(config: pytest.Config) -> None:
    """Record the run where that is asked for."""
    path: Path | None = config.getoption("--record")
    if path is not None and not hasattr(config, "workerinput"):  # a worker of pytest-xdist reports to the main process
        config.pluginmanager.register(SuiteRecord(path.absolute(), ("pytest", *sys.argv[1:])))
