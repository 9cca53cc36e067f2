"""A real run's structure: vLLM with Triton attention, five prompts of 1, 16, 34, 85 and 175 tokens, four ids each.

`recorded-run.json` holds what a recorder wrote of it, less all but three of its 36 layers: kernels by name with
the sizes of their parameters (null for structs, of which only the addresses are kept), each different event once
(addresses numbered, `a0`), and the run as microseconds since the event before and the number of the event.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kern.manifest.expressions import show
from kern.mining import MinedProcess, mine
from support.recordings import Recorder, packed

SAMPLE = Path(__file__).with_name("recorded-run.json")
BASE = 0x7F0000000000
RANGE = [BASE, 2**20]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> MinedProcess:
    dump = tmp_path_factory.mktemp("recorded-run")
    sample = json.loads(SAMPLE.read_text())
    recorder = Recorder(dump)
    module = recorder.module(b"left out")
    for wait, number in zip(sample["run"][::2], sample["run"][1::2], strict=True):
        recorder.time += 1000 * wait
        write(recorder, module, sample["kernels"], sample["events"][number])
    recorder.end()
    return mine(dump).main


def write(recorder: Recorder, module: str, kernels: list[Any], event: list[Any]) -> None:
    match event:
        case ["copy", kind, size, target]:
            recorder.write("copy", **{"from": 4096, "to": address(target), "bytes": size, "kind": kind})
        case ["fill", size, target]:
            recorder.write("fill", to=address(target), bytes=size, value=0, width=1)
        case [kernel, grid, block, values]:
            symbol, sizes = kernels[kernel]
            struct = sizes is None
            sizes = [8] * len(values) if struct else sizes
            params = [packed(address(value), size) for value, size in zip(values, sizes, strict=True)]
            places = [(0, 8 * index) if struct else (index, 0) for index in range(len(values))]
            pointers = [
                {"param": param, "at": at, "memory": "device", "range": RANGE}
                for (param, at), value in zip(places, values, strict=True)
                if isinstance(value, str)
            ]
            params = [b"".join(params).ljust(512, b"\0")] if struct else params
            number = recorder.kernel(symbol, module, [512] if struct else sizes)
            recorder.launch(number, params, pointers, grid=grid, block=block)


def address(value: str | int) -> int:
    return BASE + 512 * int(value[1:]) if isinstance(value, str) else value


def test_the_prompts_appear_with_their_lengths(process: MinedProcess) -> None:
    """Before them two passes to profile memory, one of two tokens and one of one to warm up."""
    decode = [1, 1, 1]
    assert [each.tokens for each in process.passes] == [
        *(4096, 4096, 2, 1),
        *(1, *decode),
        *(16, *decode),
        *(34, *decode),
        *(85, *decode),
        *(175, *decode),
    ]


def test_the_layer_is_found(process: MinedProcess) -> None:
    decode = [each for each in process.passes if each.tokens == 1]
    assert {(each.block.period, each.block.count) for each in decode if each.block} == {(15, 3)}
    assert len({each.variant for each in decode}) == 1


def test_instances_are_distinguished_by_their_passes(process: MinedProcess) -> None:
    def counts(symbol: str) -> set[int | None]:
        return {each.tokens for each in process.passes if each.of(symbol)}

    assert counts("kernel_unified_attention") == {2, 16, 34, 85, 175, 4096}
    assert counts("kernel_unified_attention.1") == {1}
    assert counts("reduce_segments") == {1}


def outcomes(process: MinedProcess, symbol: str) -> dict[str, set[str]]:
    """Each number of a kernel, over its call sites."""
    found: dict[str, set[str]] = {}
    for site in process.sites:
        if site.kernel.symbol == symbol:
            for number in site.numbers:
                fit = number.fit
                text = fit.status if fit.expression is None else show(fit.expression)
                found.setdefault(number.name, set()).add(f"{text} {fit.why}".strip())
    return found


def test_expressions_of_the_layers_kernels(process: MinedProcess) -> None:
    fused = outcomes(process, "fused_add_rms_norm_kernel")
    assert (fused["grid.x"], fused["param 5"]) == ({"tokens"}, {"tokens"})
    assert fused["block.x"] == {"unfit no expression gives 1 … 175 → 1024, 4096 → 256"}
    heads = outcomes(process, "rms_norm_kernel.1")
    assert heads["grid.x"] == {"tokens * 32", "tokens * 8"}
    assert heads["param 3"] == {"6144 but 4096 at tokens = 1", "6144 but 1024 at tokens = 1"}
    assert outcomes(process, "act_and_mul_kernel")["grid.x"] == {"tokens"}
    assert outcomes(process, "reshape_and_cache_kernel_flash")["param 8"] == {"6144 but 1024 at tokens = 1"}
    assert outcomes(process, "kernel_unified_attention")["grid.x"] == {"ceil((tokens + 1) / 4)"}


def test_weights_and_shared_inputs_are_distinguished(process: MinedProcess) -> None:
    norms = [site for site in process.sites if site.kernel.symbol == "fused_add_rms_norm_kernel"]
    assert {use.stability for site in norms for use in site.pointers if use.param == 3} == {"own"}
    assert {use.stability for site in norms for use in site.pointers if use.param == 0} == {"varying"}
    rotary = [site for site in process.sites if site.kernel.symbol == "rotary_embedding_kernel"]
    assert {use.stability for site in rotary for use in site.pointers if use.param in (0, 3)} == {"shared"}
