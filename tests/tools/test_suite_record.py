"""The record of a test run: what it counts, and what it says of the machine and the source."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import about
import pytest
from about import ROOT, machine, source

from support.suite_record import counts

SUITES = {
    "test_one.py": """
import pytest

def test_passes(): pass
def test_fails(): assert False
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.mark.xfail
def test_fails_as_expected(): assert False
@pytest.fixture
def broken():
    yield
    raise OSError
def test_fails_in_teardown(broken): pass
@pytest.fixture
def no_gpu(): pytest.skip("no GPU")
@pytest.mark.parametrize("n", [1, 2])
def test_skips_in_setup(n, no_gpu): pass
""",
    "test_two.py": "import nothing_of_that_name\n",
    "test_three.py": "import pytest\npytest.skip('no GPU', allow_module_level=True)\n",
}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run of SUITES."""
    folder = tmp_path_factory.mktemp("suites")
    for name, text in SUITES.items():
        (folder / name).write_text(text)
    (folder / "conftest.py").write_text(
        "from support import suite_record\n"
        "def pytest_addoption(parser): suite_record.add_option(parser)\n"
        "def pytest_configure(config): suite_record.register(config)\n"
    )
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'} {ROOT / 'benchmarks'}\n")
    out = folder / "build" / "record.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'benchmarks'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "--record", out], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert [path.name for path in out.parent.iterdir()] == ["record.json"]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_each_test_counts_once_in_its_suite(record: dict[str, Any]) -> None:
    assert record["suites"] == {
        "test_one.py": {"passed": 1, "failed": 2, "skipped": 4},
        "test_three.py": {"passed": 0, "failed": 0, "skipped": 1},
        "test_two.py": {"passed": 0, "failed": 1, "skipped": 0},
    }
    assert record["total"] == {"passed": 1, "failed": 3, "skipped": 5}


def test_it_says_when_where_and_of_what(record: dict[str, Any]) -> None:
    assert list(record)[:6] == ["date", "machine", "commit", "versions", "command", "dirty"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", record["date"])
    assert record["command"].startswith("pytest -q ")
    assert "--record" in record["command"]
    assert record["exit_status"] == 1
    assert 0 <= record["duration_s"] < 60
    assert {"python", "numpy", "pytest"} <= record["versions"].keys()


def test_the_card_and_its_driver_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "_said", lambda command: ["NVIDIA H200, 580.159.04"] * 2)
    assert machine().startswith("NVIDIA H200, driver 580.159.04; NVIDIA H200, driver 580.159.04; ")
    monkeypatch.setattr(about, "_said", lambda command: [])
    assert re.match(r"\d+ processors of .+; Linux ", machine())


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=k", "-c", "user.email=k@example.org")
    command = ["git", "-C", folder, *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_tree_that_differs_from_its_commit_is_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("KERN_COMMIT", raising=False)
    assert source() == ("not recorded", "not recorded")
    monkeypatch.setenv("KERN_COMMIT", "abc")
    assert source() == ("abc", "not recorded")
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert source() == ("abc", "not recorded")
    monkeypatch.delenv("KERN_COMMIT")
    (tmp_path / "untracked").touch()
    assert source() == (commit, False)
    (tmp_path / "a").write_text("2")
    assert source() == (commit, True)


def test_a_run_without_tests_has_no_suites() -> None:
    assert counts({}) == {"total": {"passed": 0, "failed": 0, "skipped": 0}, "suites": {}}
