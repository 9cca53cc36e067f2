"""Limits on a process are said to be what they are: what was wanted, the limit, and how to raise it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.conftest import Kern
from kern.manifest.errors import KernError
from kern.manifest.limits import help_for
from support.processes import ONE_FAMILY

FILES = "help: the limit on open files is {} (ulimit -n): raise it"


def limited(kind: int, limit: int, *command: object, **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kern", *map(str, command)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},  # type: ignore[arg-type]
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )  # type: ignore[call-overload]


@ONE_FAMILY
@pytest.mark.parametrize(("limit", "command"), [(5, "verify"), (5, "run"), (7, "run")])
def test_too_few_open_files_are_reported_and_do_not_make_a_folder_invalid(tiny: Path, limit: int, command: str) -> None:
    more = ["--prompt-ids", "1,2", "--max-tokens", "1"] if command == "run" else []
    done = limited(resource.RLIMIT_NOFILE, limit, command, tiny, *more)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith(
        f"kern: error[limit-reached]: {tiny}/kernels/" if command == "verify" else "kern: error[limit-reached]: "
    )
    assert "Too many open files" in first
    assert second == FILES.format(limit)
    assert "K1" not in done.stderr


def test_a_compiler_that_cannot_be_started_is_not_reported_as_missing(tmp_path: Path) -> None:
    build = ("build", "llama", "--random", "--config", "tiny", "--target", "host", "-o", tmp_path / "out")
    done = limited(resource.RLIMIT_NOFILE, 6, *build)
    assert done.stderr.splitlines() == [
        "kern: error[limit-reached]: starting `cc`: Too many open files",
        FILES.format(6),
    ]
    done = limited(resource.RLIMIT_FSIZE, 100, *build)
    assert done.stderr.splitlines()[-1] == "help: the limit on a file's size is 100 bytes (ulimit -f): raise it"
    assert not list(tmp_path.iterdir())


def test_an_output_at_its_size_limit_is_not_reported_as_unwritable(tmp_path: Path) -> None:
    with (tmp_path / "schema").open("w") as file:
        done = limited(resource.RLIMIT_FSIZE, 100, "schema", stdout=file)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "kern: error[limit-reached]: File too large",
        "help: the limit on a file's size is 100 bytes (ulimit -f): raise it",
    ]


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_weights_that_may_not_grow_do_not_ask_for_disk_space(kern: Kern, tmp_path: Path, compiled_once: None) -> None:
    with file_size(300_000):
        done = kern("build", "llama", "--random", "--config", "tiny", "--target", "host", "-o", tmp_path / "out")
    assert done.code == 2
    assert "File too large" in done.err
    assert "help: the limit on a file's size is 300,000 bytes (ulimit -f): raise it" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(12, "Cannot allocate memory"), "memory"),
        (MemoryError(), "memory"),
        (OSError(23, "Too many open files in system"), "open files"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "processes and threads"),
        (RuntimeError("can't start new thread"), "processes and threads"),
        (ImportError("x.so: failed to map segment from shared object"), "memory"),
    ],
)
def test_each_limit_is_known_by_its_error(monkeypatch: pytest.MonkeyPatch, error: Exception, what: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (7, 7))
    assert f"the limit on {what} is 7" in (help_for(error) or "")
    wrapped = KernError("something else")
    wrapped.__context__ = error
    if isinstance(error, OSError):
        assert f"the limit on {what} is 7" in (help_for(wrapped) or "")


def test_other_errors_have_their_own_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (7, 7))
    for error in (OSError(28, "No space left on device"), KernError("no such file"), RuntimeError("x")):
        assert help_for(error) is None


def test_without_a_limit_the_machine_itself_is_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (resource.RLIM_INFINITY,) * 2)
    assert help_for(OSError(12, "Cannot allocate memory")) == "the machine has no more memory: close other programs"
    assert help_for(RuntimeError("Cannot allocate memory")) is None
