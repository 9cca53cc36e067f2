"""The README's commands run, or parse where they need a GPU, a download or minutes; what they print is as shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli.conftest import Kern

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()

Shown = tuple[str, list[str]]
"""A command as the shell takes it, and the lines shown below it."""

SHORTER = {"bench": "--steps 2 --capacity 160 --decode-only", "--chat": "--max-tokens 2", "--spec": "--max-tokens 2"}
"""What is added to a command with such a word, the first that it has, so that it takes little time."""


def commands() -> list[Shown]:
    """Every command of the README's console blocks, with what is shown below it."""
    found: list[Shown] = []
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.S):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.M)[1:]:
            command, *output = part.rstrip("\n").split("\n")
            found.append((command.partition("   # ")[0].strip(), output))
    return found


def runs_here(command: str) -> bool:
    """Whether it needs no more than the demo's folder and what is made from it, and little time."""
    words = shlex.split(command)
    on_demo = "kern" in words and words[words.index("kern") + 1] not in ("build", "capture", "mine")
    return on_demo and "build/qwen3-4b" not in words


COMMANDS = commands()
PREPARING = [command for command, _ in COMMANDS if command.startswith(("sed ", "python "))]
"""What makes the files that other commands read."""
HERE = [shown for shown in COMMANDS if runs_here(shown[0])]
PARSED = [shown[0] for shown in COMMANDS if shown[0].startswith("kern ") and not runs_here(shown[0])]
OTHERS = [shown[0] for shown in COMMANDS if shown not in HERE and shown[0] not in [*PARSED, *PREPARING]]


@pytest.fixture(scope="module")
def place(smollm2_spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the README's reader has it, LICENSE shortened."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "build").mkdir()
    (folder / "build" / "smollm2").symlink_to(smollm2_spec)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "LICENSE").write_text((ROOT / "LICENSE").read_text()[:400])
    for command in PREPARING:
        assert shell(command, folder).returncode == 0
    return folder


def shell(command: str, folder: Path, said: str = "") -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, input=said, capture_output=True, text=True, check=False
    )


def shape(line: str) -> str:
    """A line without its numbers and with single blanks."""
    return " ".join(re.sub(r"\d[\d.]*(,\d+)*", "#", line).split())


@pytest.mark.parametrize(("command", "output"), HERE, ids=[command[:60] for command, _ in HERE])
def test_a_command_runs_as_shown(place: Path, command: str, output: list[str]) -> None:
    more = next((options for word, options in SHORTER.items() if word in command), "")
    said = [line.removeprefix("> ") for line in output if line.startswith("> ")]
    done = shell(f"{command} {more}", place, "".join(f"{line}\n" for line in said))
    if "verify" in command:
        assert done.returncode == 1
        heads = re.compile(r"error\[\w+\]|/\w+/\S+")
        assert heads.findall("\n".join(output)) == heads.findall(done.stderr)
        return
    assert done.returncode == 0, done.stderr
    if "bench" in command or "score" in command:
        assert {*map(shape, done.stdout.splitlines())} <= {*map(shape, TEXT.splitlines())}
    elif output:
        assert done.stdout.rstrip("\n").split("\n") == [line for line in output if not line.startswith("> ")]


@pytest.mark.parametrize("command", PARSED)
def test_a_command_that_needs_more_than_this_machine_parses(kern: Kern, command: str) -> None:
    _, name, *rest = shlex.split(command)
    assert kern(name, "--help", *rest).code == 0


def test_an_option_that_does_not_exist_does_not_parse(kern: Kern) -> None:
    assert kern("build", "--help", "llama", "--not-an-option", "-o", "x").code == 2


def test_the_page_is_short() -> None:
    assert TEXT.count("\n") < 150


def test_the_workspace_is_as_large_as_stated(place: Path) -> None:
    ((planned, unshared),) = re.findall(r"planned at\s(\S+ MiB), which would be (\S+ MiB) without sharing", TEXT)
    done = shell("kern inspect build/smollm2", place)
    assert re.search(rf"workspace +{planned}  planned; {unshared} without sharing", done.stdout)


def test_the_other_commands_are_known() -> None:
    assert {command.split()[0] for command in OTHERS} == {"make", "source", "pip"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for command in OTHERS:
        if command.startswith("make"):
            assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.M), command
        for named in re.findall(r"\.\[([\w,]+)\]", command):
            assert set(named.split(",")) <= extras.keys()


def test_the_program_runs_as_shown(place: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (place / "program.py").write_text(code)
    done = shell("python program.py", place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[7042]\n", "what the model says"


def test_the_demo_is_built_again_where_kern_is_newer(tmp_path: Path) -> None:
    def would_build() -> bool:
        command = ["make", "-n", "-o", ".venv/installed", "demo", f"ARTIFACT={tmp_path}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return any(line.startswith(".venv/bin/kern build") for line in done.stdout.splitlines())

    manifest = tmp_path / "manifest.json"
    assert would_build()
    manifest.touch()
    parts = *(ROOT / "src" / "kern").rglob("*"), *(ROOT / "assets").rglob("*")
    newest = max(path.stat().st_mtime for path in parts if path.is_file() and path.suffix != ".pyc")
    os.utime(manifest, (newest + 60, newest + 60))
    assert not would_build()
    os.utime(manifest, (newest - 60, newest - 60))
    assert would_build()


@pytest.mark.parametrize("status", [0, 1])
def test_the_demo_is_built_again_where_this_kern_cannot_run_it(tmp_path: Path, status: int) -> None:
    """A folder of an older kern may be newer than the sources: a copy, or built before a checkout of older sources."""
    (tmp_path / "folder").mkdir()
    manifest, log = tmp_path / "folder" / "manifest.json", tmp_path / "log"
    manifest.touch()
    os.utime(manifest, (2**32, 2**32))
    for program in ("kern", "python"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "$*" >>{log}\ncase "$*" in *--spec*) exit {status};; esac\n')
        (tmp_path / program).chmod(0o755)
    options = ["-o", ".venv/installed", f"ARTIFACT={manifest.parent}", f"BIN={tmp_path}"]
    subprocess.run(["make", *options, "demo"], cwd=ROOT, capture_output=True, check=True)

    tried, *then = log.read_text().splitlines()
    assert tried.startswith(f"run {manifest.parent} --spec ")
    assert [line.split()[0] for line in then] == [
        *(["build"] if status else []),
        "verify",
        "run",
        "examples/speculation/show.py",
    ]
