"""Lowering equals a naive interpreter that reads the manifest's JSON and knows none of the runtime's code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.artifact.types import StepKey
from kern.manifest.launches import KernelLaunch, OperatorLaunch
from kern.manifest.reading import read
from kern.manifest.writing import write
from kern.runtime.lowering import LinkedStep, link, lower, templates
from kern.runtime.memory.address_table import Bases, ProgramAddresses
from kern.runtime.memory.address_table import addresses as program_addresses
from kern.runtime.memory.planner import plan
from kern.verifier import VerifiedManifest, verified
from kern.verifier.example import BASE
from support.edited_example import edited
from support.programs import RandomProgram, random_programs


@dataclass(frozen=True)
class NamedFunction:
    symbol: str


def named_functions(checked: VerifiedManifest) -> dict[StepKey, LinkedStep]:
    functions = {
        (name, index): NamedFunction(f"{name}/{index}")
        for name, kernel in checked.manifest.kernels.items()
        for index, step in enumerate(kernel.impl.steps)
        if step.operator is None
    }
    return link(checked.manifest, functions)


def addresses(checked: VerifiedManifest, program: str) -> ProgramAddresses:
    weights = {
        name: 2**40 + 4096 * index
        for index, (name, buffer) in enumerate(checked.manifest.buffers.items())
        if buffer.class_ == "weight"
    }
    bases = Bases(weights, states=2**41, io=2**42, workspace=2**43)
    return program_addresses(checked.manifest, plan(checked), bases)[program]


def value_of(expr: Any, values: dict[str, int]) -> int:
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return values[expr]
    ((form, operand),) = expr.items()
    if form == "sym":
        return values[operand]
    left, right = (value_of(part, values) for part in operand)
    return {"add": left + right, "mul": left * right, "ceil_div": (left + right - 1) // max(right, 1)}[form]


SCALARS = {"i32": np.int32, "u32": np.uint32, "i64": np.int64, "f32": np.float32, "u8": np.uint8}


def packed(params: list[str], arguments: list[int | float]) -> bytes:
    data = b""
    for param, argument in zip(params, arguments, strict=True):
        value = SCALARS[param](argument) if param in SCALARS else np.uint64(argument)
        while len(data) % value.nbytes:
            data += b"\0"
        data += value.tobytes()
    return data


def interpreted(
    document: dict[str, Any], program: str, values: dict[str, int], where: ProgramAddresses
) -> list[tuple[Any, ...]]:
    """Every launch as plain data, straight from the JSON."""
    launches: list[tuple[Any, ...]] = []
    for index, dispatch in enumerate(document["programs"][program]["dispatches"]):
        given: list[int | float] = []
        for arg in dispatch["args"]:
            if "buf" in arg:
                given.append(where.buffers[arg["buf"]] + arg.get("offset", 0))
            elif "state" in arg:
                given.append(where.states[arg["state"]] + arg.get("offset", 0))
            elif "sym" in arg or "expr" in arg:
                given.append(value_of(arg.get("expr", arg), values))
            else:
                given.append(next(iter(arg.values())))
        for number, step in enumerate(document["kernels"][dispatch["kernel"]]["impl"]["steps"]):
            arguments: list[int | float] = []
            for arg in step["args"]:
                if "arg" in arg:
                    arguments.append(given[arg["arg"]])
                elif "scratch" in arg:
                    arguments.append(where.scratch[index, arg["scratch"]] + arg.get("offset", 0))
                else:
                    arguments.append(next(iter(arg.values())))
            label = f"{program} · {dispatch.get('label', f'dispatch {index}')} · {dispatch['kernel']} · step {number}"
            if step["symbol"].startswith("extern:"):
                launches.append((label, step["symbol"][len("extern:") :], tuple(arguments)))
                continue
            launches.append(
                (
                    label,
                    f"{dispatch['kernel']}/{number}",
                    tuple(value_of(extent, values) for extent in step["grid"]),
                    tuple(step["block"]),
                    value_of(step.get("shared_mem", 0), values),
                    packed([param.split(" align ")[0] for param in step["params"]], arguments),
                    step.get("pdl", False),
                    tuple(step["cluster"]) if "cluster" in step else None,
                    step.get("cooperative", False),
                )
            )
    return launches


def plain(launch: KernelLaunch | OperatorLaunch) -> tuple[Any, ...]:
    if isinstance(launch, OperatorLaunch):
        return (launch.label, launch.name, launch.arguments)
    return (
        launch.label,
        launch.function.symbol,
        launch.grid,
        launch.block,
        launch.shared_mem,
        launch.params,
        launch.pdl,
        launch.cluster,
        launch.cooperative,
    )


def assert_equal(checked: VerifiedManifest, program: str, values: dict[str, int]) -> None:
    where = addresses(checked, program)
    lowered = lower(templates(checked.manifest, program, where, named_functions(checked)), values)
    document = json.loads(write(checked.manifest))
    assert [plain(launch) for launch in lowered] == interpreted(document, program, values, where)


@given(random_programs(), st.data())
@settings(max_examples=40, deadline=None)
def test_lowering_equals_a_naive_interpreter(random: RandomProgram, data: st.DataObject) -> None:
    checked = verified(random.manifest)
    for program in random.manifest.programs:
        bound = random.manifest.programs[program].symbols["rows"].max
        shift = random.manifest.symbols["shift"].max
        values = {"rows": data.draw(st.integers(1, bound)), "shift": data.draw(st.integers(0, shift))}
        assert_equal(checked, program, values)


@pytest.mark.parametrize(("program", "rows"), [("fill", 1), ("fill", 63), ("step", 1)])
def test_operators_states_offsets_scratch_and_launch_attributes(program: str, rows: int) -> None:
    final = "/kernels/summarize/impl/steps/1"
    attributes = {f"{final}/pdl": "true", f"{final}/cluster": "[4, 1, 1]", f"{final}/cooperative": "true"}
    text = edited({f"{final}/args/3": '{"scratch": "count", "offset": 16}', **attributes})
    manifest = read(text.encode()).manifest
    assert manifest is not None
    assert_equal(verified(manifest), program, {"rows": rows, "start": 4095})


def test_kept_scratch_has_one_address_and_other_scratch_is_in_the_workspace() -> None:
    manifest = read(BASE.encode()).manifest
    assert manifest is not None
    checked = verified(manifest)
    kept = plan(checked).io.offsets["summarize", "count"]
    where = addresses(checked, "step")
    assert where.scratch[3, "count"] == 2**42 + kept
    assert where.scratch[3, "part"] >= 2**43
