"""Which names a manifest mentions, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kern.manifest.expressions import Expr, Interval, Sym, symbols
from kern.manifest.types import BufferArg, ExprArg, Kernel, Manifest, Program, StateArg


@dataclass(frozen=True, slots=True)
class Usage:
    """The names that are mentioned, declared or not.

    `kernels` and `buffers` map a name to the programs that use it, in the order of the programs.
    """

    kernels: Mapping[str, tuple[str, ...]]
    buffers: Mapping[str, tuple[str, ...]]
    states: frozenset[str]
    symbols: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> Usage:
        """Walk `manifest` once."""
        kernels: dict[str, dict[str, None]] = {}
        buffers: dict[str, dict[str, None]] = {}
        states: set[str] = set()
        used: set[str] = set()
        for program, body in manifest.programs.items():
            for name in {dispatch.kernel for dispatch in body.dispatches}:
                kernels.setdefault(name, {})[program] = None
            for name in _arguments(body, states, used):
                buffers.setdefault(name, {})[program] = None
        for buffer in manifest.buffers.values():
            used |= symbols_of(buffer.shape)
        for kernel in manifest.kernels.values():
            used |= symbols_of(_geometry(kernel))
        return cls(
            {name: tuple(programs) for name, programs in kernels.items()},
            {name: tuple(programs) for name, programs in buffers.items()},
            frozenset(states),
            frozenset(used),
        )


def program_symbols(manifest: Manifest) -> Mapping[str, frozenset[str]]:
    """The symbols that a call of each program must give: all that its expressions and declared buffers name."""
    buffers = {name: symbols_of(buffer.shape) for name, buffer in manifest.buffers.items()}
    kernels = {name: symbols_of(_geometry(kernel)) for name, kernel in manifest.kernels.items()}
    return {name: _needed(body, buffers, kernels) for name, body in manifest.programs.items()}


def _needed(
    body: Program, buffers: Mapping[str, frozenset[str]], kernels: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    used = set[str]()
    for buffer in _arguments(body, set(), used):
        used |= buffers.get(buffer, frozenset())
    for kernel in {dispatch.kernel for dispatch in body.dispatches}:
        used |= kernels.get(kernel, frozenset())
    return frozenset(used)


def symbol_range(manifest: Manifest, program: str, symbol: str) -> Interval:
    """The range of a declared symbol in `program`."""
    whole, narrowed = manifest.symbols[symbol], manifest.programs[program].symbols.get(symbol)
    low = whole.min if narrowed is None or narrowed.min is None else narrowed.min
    high = whole.max if narrowed is None or narrowed.max is None else narrowed.max
    return low, high


def symbols_of(expressions: Iterable[Expr]) -> frozenset[str]:
    """The symbols that any of the expressions names."""
    return frozenset(name for expr in expressions for name in symbols(expr))


def _arguments(program: Program, states: set[str], used: set[str]) -> set[str]:
    """The buffers a program mentions; states and symbols go into the sets given."""
    buffers: set[str] = set()
    for dispatch in program.dispatches:
        for arg in dispatch.args:
            # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every argument.
            if type(arg) is BufferArg:
                buffers.add(arg.buf)
            elif type(arg) is StateArg:
                states.add(arg.state)
            elif type(arg) is Sym:
                used.add(arg.sym)
            elif type(arg) is ExprArg:
                used.update(symbols(arg.expr))
    return buffers


def _geometry(kernel: Kernel) -> Iterator[Expr]:
    for scratch in kernel.impl.scratch.values():
        yield from scratch.shape
    for step in kernel.impl.steps:
        yield from step.grid
        yield step.shared_mem
