"""Rule 7, aliases: one address given twice to a dispatch, or an operator whose result overlaps what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kern.manifest.diagnostics import Code, Example, Path
from kern.manifest.types import BufferArg, Dispatch, StateArg
from kern.verifier.found import Found
from kern.verifier.wiring import Interface


def _folded(offset: int) -> Mapping[str, str]:
    """A program that multiplies a part of a buffer into another part of it, `offset` bytes on."""
    params = '["out buffer<bf16>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"]'
    forwarded = ", ".join(f'{{"arg": {index}}}' for index in range(6))
    launch = f'"params": {params}, "block": [1, 1, 1], "grid": [1, 1, 1], "args": [{forwarded}]'
    step = f'{{"symbol": "extern:cublaslt_bf16_tn", {launch}}}'
    args = f'{{"buf": "pair", "offset": {offset}}}, {{"buf": "pair"}}, {{"buf": "filter"}}'
    extents = '{"sym": "rows"}, {"i32": 128}, {"i32": 64}'
    return {
        "/buffers/pair": '{"dtype": "bf16", "shape": ["rows", 256], "class": "carry"}',
        "/kernels/fold": f'{{"params": {params}, "impl": {{"steps": [{step}]}}}}',
        "/programs/fold": f'{{"dispatches": [{{"kernel": "fold", "args": [{args}, {extents}]}}]}}',
    }


SAME_ADDRESS = Code(
    "K0720",
    "one address for two parameters, and one of them is written",
    "A kernel may rely on what it writes being nothing else that it is given, and data flow is checked parameter by "
    "parameter. A kernel that works in place says so: its interface has one `inout` parameter, which its "
    "steps may forward to several of a launch. Views of one buffer at different offsets are not refused, since only "
    "the kernel knows how far each reaches.",
    Example(
        {"/programs/fill/dispatches/1/args/0/buf": '"mixed"', "/programs/fill/dispatches/2/args/0/buf": '"mixed"'},
        {"/programs/fill/dispatches/1/args/0/buf": '"scaled"', "/programs/fill/dispatches/2/args/0/buf": '"mixed"'},
    ),
)
OPERATOR_OVERLAP = Code(
    "K0721",
    "matrix product that overlaps its own factors",
    "C takes m·n elements, A m·k and W n·k, counted from the argument's offset. Where C shares a byte with A or W, the "
    "operator overwrites what it has yet to read. Write C elsewhere.",
    Example(_folded(4096), _folded(8192)),
)


def check(dispatch: Dispatch, interface: Interface) -> Iterator[Found]:
    """A dispatch whose arguments are of the right number and kind."""
    seen: dict[tuple[str, str, int], tuple[int, bool]] = {}
    for position, _, writes in interface.pointers:
        arg = dispatch.args[position]
        if type(arg) is BufferArg:
            key = ("buffer", arg.buf, arg.offset)
        elif type(arg) is StateArg:
            key = ("state", arg.state, arg.offset)
        else:
            continue
        first, written = seen.setdefault(key, (position, writes))
        if first != position and (written or writes):
            where = f"`{key[1]}`" + (f" at offset {key[2]}" if key[2] else "")
            message = f"{where} is given to parameter {first} already, and the kernel writes through one of the two"
            help = "give it once, to an `inout` parameter that the steps forward twice, or give another buffer"
            yield Found(SAME_ADDRESS, ("args", position), message, help)
        seen[key] = first, written or writes


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes that an operator takes of something named: from `start` to before `end`."""

    kind: str
    name: str
    start: int
    end: int

    def overlaps(self, other: Extent) -> bool:
        """Whether they share a byte."""
        same = (self.kind, self.name) == (other.kind, other.name)
        return same and self.start < other.end and other.start < self.end


def overlap(operands: tuple[Extent, Extent, Extent], place: Path) -> Iterator[Found]:
    """What of A and W the result C, the first operand, overlaps, told at `place`."""
    c, *factors = operands
    found = [name for name, factor in zip("AW", factors, strict=True) if c.overlaps(factor)]
    if found:
        message = f"C overlaps {' and '.join(found)} in `{c.name}`"
        yield Found(OPERATOR_OVERLAP, place, message, "write the product to another buffer")


CODES = (SAME_ADDRESS, OPERATOR_OVERLAP)
