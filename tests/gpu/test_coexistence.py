"""Several executables on one GPU, one after another and at once, and the memory that they take and give back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern.checkpoints.config import FAMILIES, Family
from kern.engine import Generator
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.tiny import prompt

if TYPE_CHECKING:
    from gpu.conftest import Model
    from kern.device.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

PROMPT = prompt(70)
COUNT = 100
MARGIN = 200_000_000
"""Bytes of device memory beyond weights, states and workspace: modules, cublasLt, graphs, staging."""

# Its own process: nothing is left there from an earlier test.
PROGRAM = """
import json, sys
from kern.device import open_device
from kern.runtime.loading import load
from kern.engine import Generator
from kern.text import Tokenizer

folder = sys.argv[1]
device = open_device("cuda")
before = device.free_memory()
with load(folder) as executable:
    loaded = before - device.free_memory()
    generator = Generator(executable, Tokenizer.load(folder))
    ids = [token.id for token in generator.generate(list(range(1, 710)), max_tokens=32, ignore_stop=True)]
    used = before - device.free_memory()
    plan = executable.memory_plan
print(json.dumps({
    "loaded": loaded, "used": used, "left": before - device.free_memory(), "ids": len(ids),
    "weights": plan.weights, "states": plan.states.size, "workspace": plan.workspace.size,
}))
"""


def generated(folder: Path) -> list[int]:
    with load(folder, capacity=256) as executable:
        generator = Generator(executable, Tokenizer.load(folder), chunk=32)
        return [token.id for token in generator.generate(PROMPT, max_tokens=COUNT)]


def test_executables_whose_steps_alternate_do_not_disturb_each_other(tiny_folder: Callable[..., Path]) -> None:
    folders = [tiny_folder("llama"), tiny_folder("qwen3"), tiny_folder("llama")]
    alone = [generated(folder) for folder in folders]
    executables = [load(folder, capacity=256) for folder in folders]
    generators = [
        host_driven.generator(executable, Tokenizer.load(folder), chunk=32, host=number == 2)
        for number, (executable, folder) in enumerate(zip(executables, folders, strict=True))
    ]
    generations = [generator.generate(PROMPT, max_tokens=COUNT) for generator in generators]
    found = [[token.id for token in tokens] for tokens in zip(*generations, strict=True)]
    for executable in executables:
        executable.close()

    assert [list(ids) for ids in zip(*found, strict=True)] == alone


def test_closing_one_executable_leaves_the_other_whole(tiny_folder: Callable[..., Path]) -> None:
    first, second = tiny_folder("llama"), tiny_folder("qwen3")
    alone = generated(second)
    with load(second, capacity=256) as staying:
        generation = Generator(staying, Tokenizer.load(second), chunk=32).generate(PROMPT, max_tokens=COUNT)
        with load(first, capacity=256) as going:
            other = Generator(going, Tokenizer.load(first), chunk=32).generate(PROMPT, max_tokens=COUNT)
            for _ in range(5):
                next(generation)
                next(other)
        list(generation)

    assert generation.output_ids == alone


def test_twenty_loads_leave_no_memory_behind(gpu: CudaDevice, tiny: Path) -> None:
    free, ids = [], []
    for _ in range(20):
        ids.append(generated(tiny))
        free.append(gpu.free_memory())

    print(f"{tiny.name}: free after each load {free}")
    assert min(free[3:]) >= free[2], free
    assert all(each == ids[0] for each in ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_memory_in_use_is_what_was_planned(model: Callable[[Family, str], Model], family: Family) -> None:
    folder = model(family, "wide").artifact
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=False, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    planned = told["weights"] + told["states"] + told["workspace"]

    print(f"{family}: {told['used']:,} bytes in use, {told['used'] - planned:,} beyond the plan; {told}")
    assert told["ids"] == 32
    assert planned <= told["used"] <= planned + MARGIN
