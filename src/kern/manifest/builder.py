"""Builds a manifest in code: a program is written as the calls it makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from kern.manifest.counts import counted
from kern.manifest.errors import KernError
from kern.manifest.expressions import Add, CeilDiv, Expr, Mul, Sym
from kern.manifest.params import DType, Param, Scalar
from kern.manifest.types import (
    F32,
    I32,
    I64,
    U8,
    U32,
    VERSION,
    Buffer,
    BufferArg,
    BufferClass,
    Dispatch,
    DispatchArg,
    ExprArg,
    Kernel,
    Manifest,
    Meta,
    Program,
    State,
    StateArg,
    Symbol,
    SymbolBounds,
)

Shape: TypeAlias = Sequence[Expr]
Argument: TypeAlias = BufferArg | StateArg | Expr | float
"""What a dispatch takes: a buffer, a state, a symbol or expression, or a number for a literal."""


class BuilderError(KernError, code="bad-builder-call", help="correct the program that builds the manifest"):
    """A name is given twice, or arguments do not fit their parameters."""


def literal(scalar: Scalar, value: float) -> DispatchArg:
    """A literal of the given type."""
    if scalar == "f32":
        return F32(f32=float(value))
    if not isinstance(value, int):
        raise BuilderError(f"{value!r} is not an integer, and the argument is of type {scalar}")
    match scalar:
        case "i32":
            return I32(i32=value)
        case "u32":
            return U32(u32=value)
        case "i64":
            return I64(i64=value)
        case "u8":
            return U8(u8=value)


class ProgramBuilder:
    """The dispatches of one program, in the order of the calls."""

    def __init__(
        self,
        kernels: dict[str, Kernel],
        names: dict[str, tuple[str, ...]],
        name: str,
        bounds: dict[str, SymbolBounds],
    ) -> None:
        self._kernels = kernels
        self._names = names
        self._name = name
        self._bounds = bounds
        self._dispatches: list[Dispatch] = []

    def dispatch(self, kernel: str, *arguments: Argument, label: str | None = None, **named: Argument) -> None:
        """Call `kernel`; where its parameters have names, by keyword. Numbers become literals of their scalar types.

        Raises BuilderError for a kernel that was not added, and for arguments that it does not take.
        """
        location = f"program {self._name}, dispatch {label or len(self._dispatches)}"
        if kernel not in self._kernels:
            raise BuilderError(f"{location}: unknown kernel `{kernel}`; add it first")
        params = self._kernels[kernel].params
        arguments += tuple(self._ordered(kernel, named, len(arguments), location))
        if len(params) != len(arguments):
            raise BuilderError(f"{location}: `{kernel}` takes {counted(len(params), 'argument')}, not {len(arguments)}")
        args = tuple(_argument(p, a, location) for p, a in zip(params, arguments, strict=True))
        dispatch = Dispatch(kernel=kernel, args=args)
        self._dispatches.append(dispatch if label is None else Dispatch(label=label, kernel=kernel, args=args))

    def _ordered(self, kernel: str, named: Mapping[str, Argument], given: int, location: str) -> Iterator[Argument]:
        names = self._names[kernel][given:] if named else ()
        for name in (*named, *names):
            if name in self._names[kernel][:given]:
                raise BuilderError(f"{location}: two arguments for the parameter `{name}` of `{kernel}`")
            if name not in names:
                raise BuilderError(f"{location}: `{kernel}` has no parameter `{name}`")
            if name not in named:
                raise BuilderError(f"{location}: no argument for the parameter `{name}` of `{kernel}`")
        yield from (named[name] for name in names)

    def build(self) -> Program:
        """The program as data."""
        return Program(symbols=dict(self._bounds), dispatches=tuple(self._dispatches))


def _argument(param: Param, argument: Argument, location: str) -> DispatchArg:
    if isinstance(argument, BufferArg | StateArg | Sym):
        return argument
    if isinstance(argument, CeilDiv | Mul | Add):
        return ExprArg(expr=argument)
    if param.scalar is None:
        raise BuilderError(f"{location}: {argument!r} is given for the pointer `{param}`")
    return literal(param.scalar, argument)


class ManifestBuilder:
    """Collects symbols, states, buffers, kernels and programs under their names."""

    def __init__(self, model: str) -> None:
        self._meta = Meta(version=VERSION, model=model)
        self._symbols: dict[str, Symbol] = {}
        self._states: dict[str, State] = {}
        self._buffers: dict[str, Buffer] = {}
        self._kernels: dict[str, Kernel] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._programs: dict[str, ProgramBuilder] = {}

    def symbol(self, name: str, *, max: int, min: int = 1) -> Sym:
        """A scalar given for each call, within `min` … `max`."""
        self._new(name, "symbol", self._symbols)
        self._symbols[name] = Symbol(min=min, max=max)
        return Sym(sym=name)

    def state(self, name: str, *, bytes_per_token: int, granule: int = 1, align: int = 256) -> StateArg:
        """Opaque memory of `bytes_per_token` for each token of the pool, in granules of tokens."""
        self._new(name, "state", self._states)
        self._states[name] = State(bytes_per_token=bytes_per_token, granule=granule, align=align)
        return StateArg(state=name)

    def sequence_state(self, name: str, *, bytes: int, align: int = 256) -> StateArg:
        """Opaque memory of `bytes` for each sequence."""
        self._new(name, "state", self._states)
        self._states[name] = State(bytes=bytes, align=align)
        return StateArg(state=name)

    def input(self, name: str, dtype: DType, shape: Shape) -> BufferArg:
        """A buffer that the host writes."""
        return self._buffer(name, dtype, shape, "input")

    def output(self, name: str, dtype: DType, shape: Shape) -> BufferArg:
        """A buffer that the host reads."""
        return self._buffer(name, dtype, shape, "output")

    def weight(self, name: str, dtype: DType, shape: Sequence[int]) -> BufferArg:
        """A buffer bound by its name to a tensor of the weights file."""
        return self._buffer(name, dtype, shape, "weight")

    def workspace(self, name: str, dtype: DType, shape: Shape) -> BufferArg:
        """A buffer that lives inside one execution."""
        return self._buffer(name, dtype, shape, "workspace")

    def carry(self, name: str, dtype: DType, shape: Shape) -> BufferArg:
        """A buffer that one program writes and others, or later runs, read."""
        return self._buffer(name, dtype, shape, "carry")

    def kernel(self, name: str, kernel: Kernel, params: Iterable[str] = ()) -> str:
        """A kernel under a name, for dispatches to call; `params` are names for its parameters."""
        self._new(name, "kernel", self._kernels)
        names = tuple(params)
        if names and len(names) != len(kernel.params):
            raise BuilderError(f"`{name}` has {counted(len(kernel.params), 'parameter')}, and {len(names)} names")
        if len(set(names)) != len(names):
            raise BuilderError(f"two parameters of `{name}` have the same name: {', '.join(names)}")
        self._kernels[name], self._names[name] = kernel, names
        return name

    def program(self, name: str, **bounds: tuple[int, int]) -> ProgramBuilder:
        """A new program; `tokens=(1, 1)` narrows a symbol's bounds inside it."""
        self._new(name, "program", self._programs)
        narrowed = {symbol: self._narrowed(symbol, low, high) for symbol, (low, high) in bounds.items()}
        self._programs[name] = ProgramBuilder(self._kernels, self._names, name, narrowed)
        return self._programs[name]

    def _narrowed(self, name: str, low: int, high: int) -> SymbolBounds:
        """The bounds of a symbol in a program, without a minimum where it is the symbol's own."""
        symbol = self._symbols.get(name)
        return SymbolBounds(max=high) if symbol is not None and low == symbol.min else SymbolBounds(min=low, max=high)

    def build(self) -> Manifest:
        """The manifest, without the kernels that no program calls. It is not verified here."""
        programs = {name: program.build() for name, program in self._programs.items()}
        called = {dispatch.kernel for program in programs.values() for dispatch in program.dispatches}
        return Manifest(
            meta=self._meta,
            symbols=dict(self._symbols),
            states=dict(self._states),
            buffers=dict(self._buffers),
            kernels={name: kernel for name, kernel in self._kernels.items() if name in called},
            programs=programs,
        )

    def _buffer(self, name: str, dtype: DType, shape: Shape, class_: BufferClass) -> BufferArg:
        self._new(name, "buffer", self._buffers)
        self._buffers[name] = Buffer.model_validate({"dtype": dtype, "shape": tuple(shape), "class": class_})
        return BufferArg(buf=name)

    @staticmethod
    def _new(name: str, kind: str, names: Mapping[str, object]) -> None:
        if name in names:
            raise BuilderError(f"two {kind}s are called `{name}`")
