"""From a program and symbol values to a flat list of launches with everything resolved. Nothing here runs or allocates.

Scalars are packed little-endian, each at its offset in the parameter layout of the C ABI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kern.artifact.types import StepKey
from kern.manifest.effects import Given, given
from kern.manifest.expressions import Expr, Sym, Symbolic, evaluate
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


class Template(NamedTuple):
    """A launch of a program with everything resolved that does not follow from the values of symbols.

    `arguments` has 0 where an expression of `symbolic`, by position, gives the argument. `linked` is None where the
    step calls a built-in operator.
    """

    label: str
    step: Step
    linked: LinkedStep | None
    arguments: tuple[int | float, ...]
    symbolic: tuple[tuple[int, Expr], ...]


def templates(
    manifest: Manifest, program: str, addresses: ProgramAddresses, linked: Mapping[StepKey, LinkedStep]
) -> tuple[Template, ...]:
    """The launches of `program` at any values, in order.

    They are labelled "program · dispatch · kernel · step", a dispatch without a label by its index.
    """
    return tuple(
        template
        for index, dispatch in enumerate(manifest.programs[program].dispatches)
        for template in _of_dispatch(manifest, program, index, dispatch, addresses, linked)
    )


def lower(program: Sequence[Template], values: Mapping[str, int]) -> tuple[Launch, ...]:
    """The launches of a program at `values`, which has a value for every symbol that the program uses."""
    return tuple(_launch(template, values) for template in program)


def _of_dispatch(
    manifest: Manifest,
    program: str,
    index: int,
    dispatch: Dispatch,
    addresses: ProgramAddresses,
    linked: Mapping[StepKey, LinkedStep],
) -> Iterator[Template]:
    where = f"{program} · {dispatch.label or f'dispatch {index}'} · {dispatch.kernel}"
    for number, step in enumerate(manifest.kernels[dispatch.kernel].impl.steps):
        values = [_value(operand, index, addresses) for operand in given(step, dispatch.args)]
        yield Template(
            f"{where} · step {number}",
            step,
            None if step.operator is not None else linked[dispatch.kernel, number],
            tuple(0 if isinstance(value, Symbolic) else value for value in values),
            tuple((position, value) for position, value in enumerate(values) if isinstance(value, Symbolic)),
        )


def _launch(template: Template, values: Mapping[str, int]) -> Launch:
    label, step, linked, arguments, symbolic = template
    if symbolic:
        resolved = list(arguments)
        for position, expression in symbolic:
            resolved[position] = evaluate(expression, values)
        arguments = tuple(resolved)
    if linked is None:
        assert step.operator is not None
        return OperatorLaunch(label, step.operator, tuple(int(value) for value in arguments))
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


def _value(operand: Given | None, dispatch: int, addresses: ProgramAddresses) -> int | float | Expr:
    """An address, a number, or the expression that gives it at the values of a call."""
    match operand:
        case BufferArg():
            return addresses.buffers[operand.buf] + operand.offset
        case StateArg():
            return addresses.states[operand.state] + operand.offset
        case ScratchArg():
            return addresses.scratch[dispatch, operand.scratch] + operand.offset
        case Sym():
            return operand
        case ExprArg():
            return operand.expr
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
