"""Running test programs on a machine with a fake driver and the recorder, and what was recorded of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kern.capture.library import SOURCES
from kern.toolchain.cuda_headers import find_toolkit

SUPPORT = Path(__file__).parent


@dataclass(frozen=True)
class Machine:
    """Where the fake libraries and the recorder are."""

    libraries: Path
    recorder: Path

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "LD_LIBRARY_PATH": str(self.libraries),
            "PYTHONPATH": str(SUPPORT.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@dataclass(frozen=True)
class Recorded:
    """What a program printed, and what was recorded of it."""

    status: int
    stdout: str
    stderr: str
    dump: Path

    @property
    def folder(self) -> Path:
        (folder,) = self.dump.iterdir()
        return folder

    @property
    def log(self) -> str:
        return (self.folder / "recorder.log").read_text()

    @property
    def text(self) -> bytes:
        return (self.folder / "launches.jsonl").read_bytes()

    @property
    def records(self) -> list[dict[str, Any]]:
        text = self.text
        assert text.endswith(b"\n"), "a torn line"
        return [json.loads(line) for line in text.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["record"] == kind]

    def only(self, kind: str) -> dict[str, Any]:
        (record,) = self.of(kind)
        return record


class Recorder:
    """Runs Python programs that use the fake driver, with a recorder in them."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder

    def __call__(self, program: str, *arguments: str | Path, status: int = 0, **environment: str) -> Recorded:
        """Run `program` after PREAMBLE; it must end with `status`."""
        dump = self.folder / f"dump-{len(list(self.folder.iterdir()))}"
        dump.mkdir()
        own = {"CUDA_INJECTION64_PATH": str(self.machine.recorder), "KERN_CAPTURE_DIR": str(dump)}
        done = subprocess.run(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), *arguments],
            env=self.machine.environment() | own | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == status, done.stderr
        return Recorded(done.returncode, done.stdout, done.stderr, dump)


PREAMBLE = "import os, sys\nfrom pathlib import Path\nfrom support.fake_driver import *\nprogram = Program()\n"


def compile_c(output: Path, sources: Sequence[Path], *options: str) -> None:
    includes = [f"-I{folder}" for folder in (SOURCES, *find_toolkit().includes)]
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *includes, *options]
    done = subprocess.run([*command, *sources, "-o", output, "-ldl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
