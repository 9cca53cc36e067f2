"""Rule 7, pointers: kind, dtype, alignment and bounds of the buffers and states that a dispatch passes."""

from __future__ import annotations

from kern.manifest.arrays import ALIGNMENT
from kern.manifest.counts import counted
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.params import Param
from kern.manifest.types import BufferArg, State, StateArg
from kern.verifier.example import edit
from kern.verifier.scope import Scope

_SCALE = "/programs/fill/dispatches/1"
_RECORD = "/programs/fill/dispatches/2"

ARGUMENT_KIND = Code(
    "K0706",
    "dispatch argument of the wrong kind",
    "A `buffer<dtype>` takes a buffer, a `ptr` takes a state, and a scalar takes a symbol, an expression or a literal "
    "of its type. A number passed as an address, or the reverse, would fail only on the device.",
    edit(f"{_SCALE}/args/2", '{"buf": "mixed"}', '{"f32": 0.5}'),
)
DTYPE = Code(
    "K0707",
    "buffer of the wrong dtype",
    "A buffer may be passed only to parameters that point to its dtype; nothing is converted. Pass another buffer, or "
    "fix the dtype of the buffer or of the parameter.",
    edit(f"{_SCALE}/args/1/buf", '"signal"', '"mixed"'),
)
STATE_TO_BUFFER = Code(
    "K0708",
    "state passed as a buffer",
    "A state is opaque memory without a dtype and may be passed only to parameters declared `ptr`. Declare the "
    "parameter of a kernel that uses a state as `ptr`.",
    edit(f"{_SCALE}/args/1", '{"state": "history"}', '{"buf": "mixed"}'),
)
MISALIGNED = Code(
    "K0713",
    "misaligned offset",
    "The address must be a multiple of the dtype's size, and of the `align` of the interface's parameter or of any "
    "launch that it is forwarded to. Buffers start at multiples of 256 bytes, states at multiples of their `align`, so "
    "the offset decides.",
    edit(f"{_SCALE}/args/1", '{"buf": "mixed", "offset": 8}', '{"buf": "mixed", "offset": 16}'),
)
OUTSIDE_BUFFER = Code(
    "K0714",
    "offset outside the buffer",
    "An offset is at least 0 and less than the bytes reserved for the buffer, at the upper bounds of its symbols over "
    "all programs that use it. Memory beyond it belongs to other buffers.",
    edit(f"{_SCALE}/args/1", '{"buf": "mixed", "offset": 32768}', '{"buf": "mixed", "offset": 32752}'),
)
OUTSIDE_STATE = Code(
    "K0715",
    "offset outside the state's granule",
    "At its smallest a state per token has one granule, so an offset is less than bytes_per_token × granule. "
    "For a state per sequence, it is less than `bytes`.",
    edit(f"{_RECORD}/args/1", '{"state": "history", "offset": 8192}', '{"state": "history", "offset": 8176}'),
)


def buffer(scope: Scope, arg: BufferArg, param: Param, alignment: int, path: Path) -> Diagnostic | None:
    """The error in a declared buffer for a parameter."""
    declared, size, offset = scope.manifest.buffers[arg.buf], scope.buffer_bytes[arg.buf], arg.offset
    if param.dtype is None:
        return kind(f"the buffer `{arg.buf}`", param, path)
    if declared.dtype != param.dtype:
        message = f"`{arg.buf}` is {declared.dtype}, and the kernel takes `{param}`"
        return DTYPE.at(path, message, "pass another buffer, or give both the same dtype")
    # An offset is a constant while an array shrinks with its symbols, so the bytes reserved are the limit.
    if offset < 0 or (size is not None and offset >= size):
        return _outside(OUTSIDE_BUFFER, arg.buf, offset, size, path)
    if offset % alignment or alignment > ALIGNMENT:
        return _misaligned(arg.buf, offset, alignment, ALIGNMENT, path)
    return None


def state(scope: Scope, arg: StateArg, param: Param, alignment: int, path: Path) -> Diagnostic | None:
    """The error in a declared state for a parameter."""
    declared, offset = scope.manifest.states[arg.state], arg.offset
    size, base = _granule_bytes(declared), max(ALIGNMENT, declared.align)
    if param.scalar is not None:
        return kind(f"the state `{arg.state}`", param, path)
    if param.dtype is not None:
        message = f"the state `{arg.state}` for `{param}`"
        return STATE_TO_BUFFER.at(path, message, "give a buffer, or declare the parameter `ptr`")
    if offset < 0 or (size is not None and offset >= size):
        return _outside(OUTSIDE_STATE, arg.state, offset, size, path)
    if offset % alignment or alignment > base:
        return _misaligned(arg.state, offset, alignment, base, path)
    return None


def kind(given: str, param: Param, path: Path) -> Diagnostic:
    """The error that an argument is of another kind than its parameter."""
    wanted = "a number" if param.scalar is not None else "a state" if param.dtype is None else "a buffer"
    return ARGUMENT_KIND.at(path, f"{given} for `{param}`", f"give {wanted}")


def _granule_bytes(state: State) -> int | None:
    """The bytes that exist at any size of the state; None where the declaration has an error."""
    if (state.bytes_per_token is None) == (state.bytes is None) or state.granule < 1:
        return None
    size = state.bytes if state.bytes_per_token is None else state.bytes_per_token * state.granule
    return size if size is not None and size > 0 else None


def _outside(code: Code, name: str, offset: int, size: int | None, path: Path) -> Diagnostic:
    return code.at((*path, "offset"), outside(name, offset, size), inside(offset, size))


def outside(name: str, offset: int, size: int | None) -> str:
    """The message for an offset outside the `size` bytes of an array or state, where they are known."""
    within = f"the {counted(size, 'byte')} of " if size is not None else ""
    return f"offset {offset} is outside {within}`{name}`"


def inside(offset: int, size: int | None) -> str:
    """The fix for it: the offset may be too small or too large."""
    return "give an offset of 0 or more" if offset < 0 or size is None else f"give an offset below {size}"


def _misaligned(name: str, offset: int, alignment: int, base: int, path: Path) -> Diagnostic:
    if offset % alignment:
        message = f"offset {offset} is not a multiple of the {alignment} bytes that the kernel needs"
        return MISALIGNED.at((*path, "offset"), message, f"move it to a multiple of {alignment}")
    message = f"the kernel needs a multiple of {alignment} bytes, and `{name}` starts at a multiple of {base}"
    return MISALIGNED.at(path, message, "require less alignment in the kernel, or give the state more")


CODES = (ARGUMENT_KIND, DTYPE, STATE_TO_BUFFER, MISALIGNED, OUTSIDE_BUFFER, OUTSIDE_STATE)
