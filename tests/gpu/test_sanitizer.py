"""Tiny models under compute-sanitizer: no access out of bounds or unaligned, no race in shared memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpu.conftest import Kern

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FOUND = 9
IDS = ",".join(map(str, range(1, 38)))
OPTIONS = ("--prompt-ids", IDS, "--max-tokens", 5, "--chunk", 20, "--capacity", 64, "--ignore-stop", "--json")
# Refusals of the driver are checked where it is called: a function's parameters are asked for until there are no more.
TOOLS = {"memcheck": ("--tool", "memcheck", "--report-api-errors", "no"), "racecheck": ("--tool", "racecheck")}
CLEAN = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "(0 errors, 0 warnings)"}


@pytest.mark.parametrize("tool", CLEAN)
def test_nothing_is_found(kern: Kern, tiny: Path, tmp_path: Path, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    log = tmp_path / "log"
    plain = kern("run", tiny, *OPTIONS)  # which also chooses the algorithms
    under = (sanitizer, *TOOLS[tool], "--log-file", str(log), "--error-exitcode", str(FOUND))
    done = kern("run", tiny, *OPTIONS, under=under)

    said = log.read_text()
    print(said[-4000:])
    assert done.returncode == 0, done.stderr
    assert CLEAN[tool] in said
    assert json.loads(done.stdout)["output_ids"] == json.loads(plain.stdout)["output_ids"]
