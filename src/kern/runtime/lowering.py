"""From a program and symbol values to a flat list of launches with everything resolved. Nothing here runs or allocates.

Scalars are packed little-endian, each at its offset in the parameter layout of the C ABI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kern.artifact.types import StepKey
from kern.manifest.effects import Given, given
from kern.manifest.expressions import Sym, evaluate
from kern.manifest.launches import EntryPoint, KernelLaunch, Launch, OperatorLaunch
from kern.manifest.params import Layout, Param, Scalar, layout
from kern.manifest.types import BufferArg, Dispatch, ExprArg, Manifest, ScratchArg, StateArg, Step
from kern.runtime.memory.address_table import ProgramAddresses

_FORMATS: Final[dict[Scalar, str]] = {"i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}
_ADDRESS: Final = "Q"


class LinkedStep(NamedTuple):
    """A step that launches a kernel: the loaded function, and how its parameter buffer is packed."""

    function: EntryPoint
    layout: Layout
    packing: struct.Struct


def link(manifest: Manifest, functions: Mapping[StepKey, EntryPoint]) -> dict[StepKey, LinkedStep]:
    """The linked steps of a manifest that has these functions."""
    return {
        (kernel, index): LinkedStep(function, *_packing(manifest.kernels[kernel].impl.steps[index].params))
        for (kernel, index), function in functions.items()
    }


def lower(
    manifest: Manifest,
    program: str,
    values: Mapping[str, int],
    addresses: ProgramAddresses,
    linked: Mapping[StepKey, LinkedStep],
) -> tuple[Launch, ...]:
    """The launches of `program` at `values`, in order.

    `values` has a value for every symbol that the program uses. Launches are labelled
    "program · dispatch · kernel · step", a dispatch without a label by its index.
    """
    return tuple(
        launch
        for index, dispatch in enumerate(manifest.programs[program].dispatches)
        for launch in _dispatch(manifest, program, index, dispatch, values, addresses, linked)
    )


def _dispatch(
    manifest: Manifest,
    program: str,
    index: int,
    dispatch: Dispatch,
    values: Mapping[str, int],
    addresses: ProgramAddresses,
    linked: Mapping[StepKey, LinkedStep],
) -> Iterator[Launch]:
    where = f"{program} · {dispatch.label or f'dispatch {index}'} · {dispatch.kernel}"
    for number, step in enumerate(manifest.kernels[dispatch.kernel].impl.steps):
        arguments = [_value(operand, index, values, addresses) for operand in given(step, dispatch.args)]
        label = f"{where} · step {number}"
        if step.operator is not None:
            yield OperatorLaunch(label, step.operator, tuple(int(value) for value in arguments))
        else:
            yield _kernel_launch(label, step, arguments, values, linked[dispatch.kernel, number])


def _kernel_launch(
    label: str, step: Step, arguments: Sequence[int | float], values: Mapping[str, int], linked: LinkedStep
) -> KernelLaunch:
    x, y, z = step.grid
    return KernelLaunch(
        label,
        linked.function,
        grid=(evaluate(x, values), evaluate(y, values), evaluate(z, values)),
        block=step.block,
        shared_mem=evaluate(step.shared_mem, values),
        params=linked.packing.pack(*arguments),
        layout=linked.layout,
        pdl=step.pdl,
        cluster=step.cluster,
        cooperative=step.cooperative,
    )


def _value(operand: Given | None, dispatch: int, values: Mapping[str, int], addresses: ProgramAddresses) -> int | float:
    match operand:
        case BufferArg():
            return addresses.buffers[operand.buf] + operand.offset
        case StateArg():
            return addresses.states[operand.state] + operand.offset
        case ScratchArg():
            return addresses.scratch[dispatch, operand.scratch] + operand.offset
        case Sym():
            return values[operand.sym]
        case ExprArg():
            return evaluate(operand.expr, values)
        case _:
            assert operand is not None
            return operand.value


def _packing(params: Sequence[Param]) -> tuple[Layout, struct.Struct]:
    where = layout(params)
    parts, end = ["<"], 0
    for param, offset, size in zip(params, where.offsets, where.sizes, strict=True):
        parts.append("x" * (offset - end) + (_ADDRESS if param.scalar is None else _FORMATS[param.scalar]))
        end = offset + size
    return where, struct.Struct("".join(parts))
