"""The manifest as data, one class for each object of the wire form (format version 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, final

from pydantic import Discriminator, Field, FiniteFloat, Tag

from kern.manifest.expressions import TAG, Expr, Int, Name, NotNull, Sym, Wire
from kern.manifest.params import DType, Param, Scalar

BufferClass = Literal["input", "output", "weight", "workspace", "carry"]
Dim3: TypeAlias = tuple[int, int, int]

OPERATOR_PREFIX = "extern:"
VERSION = 2


class Meta(Wire):
    """The header. `model` is a label without meaning to the runtime."""

    version: Int
    model: str


class Symbol(Wire):
    """A scalar given for each call, with its inclusive bounds."""

    min: Int = 1
    max: Int


class SymbolBounds(Wire):
    """Bounds of a symbol inside one program; a bound left out is the global one."""

    min: Annotated[Int | None, NotNull] = None
    max: Annotated[Int | None, NotNull] = None


class State(Wire):
    """Opaque memory that outlives executions: per token (in granules of tokens), or per sequence."""

    bytes_per_token: Annotated[Int | None, NotNull] = None
    bytes: Annotated[Int | None, NotNull] = None
    align: Int = 256
    granule: Int = 1


class Buffer(Wire):
    """A named array: dense, row-major, at the call's symbol values."""

    dtype: DType
    shape: tuple[Expr, ...]
    class_: Annotated[BufferClass, Field(alias="class")]


class Scratch(Wire):
    """Memory private to one kernel's implementation."""

    dtype: DType
    shape: tuple[Expr, ...]
    keep: bool = False


@final
class Arg(Wire):
    """Forwards interface parameter `arg` to a step."""

    arg: Int


class ScratchArg(Wire):
    """The address of a scratch, plus `offset` bytes."""

    scratch: Name
    offset: Int = 0


class BufferArg(Wire):
    """The address of a buffer, plus `offset` bytes."""

    buf: Name
    offset: Int = 0

    def at(self, offset: int) -> BufferArg:
        """The same buffer, `offset` bytes further on."""
        return BufferArg(buf=self.buf, offset=self.offset + offset)


class StateArg(Wire):
    """The address of a state, plus `offset` bytes."""

    state: Name
    offset: Int = 0

    def at(self, offset: int) -> StateArg:
        """The same state, `offset` bytes further on."""
        return StateArg(state=self.state, offset=self.offset + offset)


class ExprArg(Wire):
    """The value of an expression, as a scalar."""

    expr: Expr


class I32(Wire):
    """A 32-bit signed literal."""

    scalar: ClassVar[Scalar] = "i32"
    i32: Int

    @property
    def value(self) -> int:
        """The literal."""
        return self.i32


class U32(Wire):
    """A 32-bit unsigned literal."""

    scalar: ClassVar[Scalar] = "u32"
    u32: Int

    @property
    def value(self) -> int:
        """The literal."""
        return self.u32


class I64(Wire):
    """A 64-bit signed literal."""

    scalar: ClassVar[Scalar] = "i64"
    i64: Int

    @property
    def value(self) -> int:
        """The literal."""
        return self.i64


class F32(Wire):
    """A 32-bit floating-point literal."""

    scalar: ClassVar[Scalar] = "f32"
    f32: FiniteFloat

    @property
    def value(self) -> float:
        """The literal."""
        return self.f32


class U8(Wire):
    """An 8-bit unsigned literal."""

    scalar: ClassVar[Scalar] = "u8"
    u8: Int

    @property
    def value(self) -> int:
        """The literal."""
        return self.u8


Literals: TypeAlias = I32 | U32 | I64 | F32 | U8

_LITERALS: dict[str, type[Wire]] = {"i32": I32, "u32": U32, "i64": I64, "f32": F32, "u8": U8}
_DISPATCH_ARGS: dict[str, type[Wire]] = {
    "buf": BufferArg,
    "state": StateArg,
    "sym": Sym,
    "expr": ExprArg,
    **_LITERALS,
}
_STEP_ARGS: dict[str, type[Wire]] = {"arg": Arg, "scratch": ScratchArg, **_LITERALS}


def _form_among(forms: Mapping[str, type[Wire]]) -> Any:
    by_type = {kind: TAG + form for form, kind in forms.items()}

    def form(value: Any) -> str | None:
        if isinstance(value, dict):
            return next((TAG + key for key in value if key in forms), None)
        return by_type.get(type(value))

    return form


DispatchArg: TypeAlias = Annotated[
    Annotated[BufferArg, Tag(TAG + "buf")]
    | Annotated[StateArg, Tag(TAG + "state")]
    | Annotated[Sym, Tag(TAG + "sym")]
    | Annotated[ExprArg, Tag(TAG + "expr")]
    | Annotated[I32, Tag(TAG + "i32")]
    | Annotated[U32, Tag(TAG + "u32")]
    | Annotated[I64, Tag(TAG + "i64")]
    | Annotated[F32, Tag(TAG + "f32")]
    | Annotated[U8, Tag(TAG + "u8")],
    Discriminator(_form_among(_DISPATCH_ARGS)),
]
StepArg: TypeAlias = Annotated[
    Annotated[Arg, Tag(TAG + "arg")]
    | Annotated[ScratchArg, Tag(TAG + "scratch")]
    | Annotated[I32, Tag(TAG + "i32")]
    | Annotated[U32, Tag(TAG + "u32")]
    | Annotated[I64, Tag(TAG + "i64")]
    | Annotated[F32, Tag(TAG + "f32")]
    | Annotated[U8, Tag(TAG + "u8")],
    Discriminator(_form_among(_STEP_ARGS)),
]


class Step(Wire):
    """One launch of an implementation: a symbol in a module, its own ABI, geometry and arguments."""

    symbol: str
    params: tuple[Param, ...]
    block: tuple[Int, Int, Int]
    grid: tuple[Expr, Expr, Expr]
    shared_mem: Expr = 0
    cubin: Annotated[str | None, NotNull] = None
    sha256: Annotated[str | None, NotNull] = None
    pdl: bool = False
    cluster: Annotated[tuple[Int, Int, Int] | None, NotNull] = None
    cooperative: bool = False
    args: tuple[StepArg, ...]

    @property
    def operator(self) -> str | None:
        """The name of the built-in operator that this step calls; None for a kernel of a file."""
        return self.symbol.removeprefix(OPERATOR_PREFIX) if self.symbol.startswith(OPERATOR_PREFIX) else None


class Impl(Wire):
    """The replaceable half of a kernel: private memory and the launches, in order."""

    scratch: Mapping[Name, Scratch] = {}
    steps: tuple[Step, ...]


class Kernel(Wire):
    """An interface (`params`) and its implementation."""

    params: tuple[Param, ...]
    impl: Impl


class Dispatch(Wire):
    """One call of a kernel. `label` is for people."""

    label: Annotated[str | None, NotNull] = None
    kernel: Name
    args: tuple[DispatchArg, ...]


class Program(Wire):
    """Dispatches in order; `symbols` narrows the bounds of symbols inside this program."""

    symbols: Mapping[Name, SymbolBounds] = {}
    dispatches: tuple[Dispatch, ...]


class Manifest(Wire):
    """Everything the runtime may know. Read, but not yet verified."""

    meta: Meta
    symbols: Mapping[Name, Symbol] = {}
    states: Mapping[Name, State] = {}
    buffers: Mapping[Name, Buffer]
    kernels: Mapping[Name, Kernel]
    programs: Mapping[Name, Program]
