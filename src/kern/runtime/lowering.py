"""A program at given symbol values, lowered to a flat list of launches with everything resolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kern.artifact.types import StepKey
from kern.device.base import Function, KernelLaunch, Launch, Operator, OperatorLaunch
from kern.manifest.expressions import Sym, evaluate
from kern.manifest.types import (
    Arg,
    BufferArg,
    Dispatch,
    DispatchArg,
    ExprArg,
    Manifest,
    ScratchArg,
    StateArg,
    Step,
)
from kern.runtime.kernel_params import Packer, packer
from kern.runtime.memory.address_table import ProgramAddresses

Value = int | float
BindOperator = Callable[[str, Sequence[int]], Operator]


@dataclass(frozen=True, slots=True)
class Linkage:
    """What is behind the steps of a manifest on one device.

    `functions` and `packers` hold every step that is a kernel launch; `operator` binds the name behind
    `extern:` to its arguments.
    """

    functions: Mapping[StepKey, Function]
    packers: Mapping[StepKey, Packer]
    operator: BindOperator


def linkage(manifest: Manifest, functions: Mapping[StepKey, Function], operator: BindOperator) -> Linkage:
    """The linkage of a manifest whose steps have these functions."""
    packers = {
        (kernel, index): packer(manifest.kernels[kernel].impl.steps[index].params) for kernel, index in functions
    }
    return Linkage(functions, packers, operator)


def lower(
    manifest: Manifest, program: str, values: Mapping[str, int], addresses: ProgramAddresses, linkage: Linkage
) -> tuple[Launch, ...]:
    """The launches of `program` at `values`, in order.

    `values` gives every symbol that the program names. Launches are labelled
    "program · dispatch · kernel · step", a dispatch without a label by its index.
    """
    return tuple(
        launch
        for index, dispatch in enumerate(manifest.programs[program].dispatches)
        for launch in _dispatch(manifest, program, index, dispatch, values, addresses, linkage)
    )


def _dispatch(
    manifest: Manifest,
    program: str,
    index: int,
    dispatch: Dispatch,
    values: Mapping[str, int],
    addresses: ProgramAddresses,
    linkage: Linkage,
) -> Iterator[Launch]:
    given = [_argument(arg, values, addresses) for arg in dispatch.args]
    where = f"{program} · {dispatch.label or f'dispatch {index}'} · {dispatch.kernel}"
    for number, step in enumerate(manifest.kernels[dispatch.kernel].impl.steps):
        arguments = _step_arguments(step, given, index, addresses)
        label = f"{where} · step {number}"
        if step.extern is not None:
            yield OperatorLaunch(label, linkage.operator(step.extern, [int(value) for value in arguments]))
        else:
            yield _kernel_launch(label, step, arguments, values, linkage, (dispatch.kernel, number))


def _kernel_launch(
    label: str, step: Step, arguments: Sequence[Value], values: Mapping[str, int], linkage: Linkage, key: StepKey
) -> KernelLaunch:
    x, y, z = step.grid
    packing = linkage.packers[key]
    return KernelLaunch(
        label,
        linkage.functions[key],
        grid=(evaluate(x, values), evaluate(y, values), evaluate(z, values)),
        block=step.block,
        shared_mem=evaluate(step.shared_mem, values),
        params=packing.pack(arguments),
        layout=packing.layout,
        pdl=step.pdl,
        cluster=step.cluster,
        cooperative=step.cooperative,
    )


def _argument(arg: DispatchArg, values: Mapping[str, int], addresses: ProgramAddresses) -> Value:
    match arg:
        case BufferArg():
            return addresses.buffers[arg.buf] + arg.offset
        case StateArg():
            return addresses.states[arg.state] + arg.offset
        case Sym():
            return values[arg.sym]
        case ExprArg():
            return evaluate(arg.expr, values)
        case _:
            return arg.value


def _step_arguments(step: Step, given: Sequence[Value], dispatch: int, addresses: ProgramAddresses) -> list[Value]:
    arguments: list[Value] = []
    for arg in step.args:
        match arg:
            case Arg():
                arguments.append(given[arg.arg])
            case ScratchArg():
                arguments.append(addresses.scratch[dispatch, arg.scratch] + arg.offset)
            case _:
                arguments.append(arg.value)
    return arguments
