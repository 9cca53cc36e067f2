"""The calls that a text caller makes of a manifest's programs, and what those programs must do with its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kern.manifest.expressions import Expr, Sym, symbols
from kern.manifest.params import DTYPE_BYTES, Param
from kern.manifest.types import Buffer, BufferArg, ExprArg, Manifest, Program
from kern.text.contract import PAGE, PAGES, SEQS, STEP_INPUTS, TOKENS, TextSettings, round_calls

_GIVEN: Final = (TOKENS.sym, SEQS.sym, PAGES.sym)
_INPUTS: Final = frozenset(each.name for each in STEP_INPUTS)
_UNCHANGED: Final = frozenset({"block_table", "cu_seqlens_q"})
"""Inputs that say the same of each step of one sequence: all that a program may read that feeds itself."""
_IDS: Final = ("token_ids", "step_token", "round_tokens")
"""Buffers of ids whose rows are looked up."""


@dataclass(frozen=True, slots=True)
class TextCall:
    """One program as a text caller runs it.

    `tokens` is the value of that symbol; None: any from 1 on, as many as the program takes. The program may read
    `inputs`; it must read `reads` and write `writes`, or what the caller writes and reads would be without effect.
    """

    program: str
    tokens: int | None
    inputs: frozenset[str] = _INPUTS
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def generation_calls(begins: bool) -> tuple[TextCall, ...]:
    """What generation runs; with `begins`, decode feeds itself after program `begin`."""
    prefill = TextCall("prefill", None, reads=("token_ids",))
    if not begins:
        return prefill, TextCall("decode", 1, reads=("token_ids",), writes=("next_token",))
    begin = TextCall("begin", 1, reads=("token_ids",))
    return prefill, begin, TextCall("decode", 1, _UNCHANGED, writes=("next_token", "token_ring"))


def speculation_calls(rows: int) -> tuple[TextCall, ...]:
    """What rounds of `rows` rows run, beside generation."""
    writes = {
        "draft": ("round_tokens",),
        "verify": ("predicted",),
        "accept": ("accepted", "token_ring", "round_tokens", "step_position"),
    }
    begin = TextCall("begin_spec", 1, reads=("token_ids",), writes=("round_tokens", "round_count"))
    calls = (TextCall(name, tokens, _UNCHANGED, writes=writes.get(name, ())) for name, tokens in round_calls(rows))
    return begin, *calls


SCORING_CALLS: Final = (
    TextCall("score", None, _INPUTS | {"targets"}, reads=("token_ids", "targets"), writes=("nll",)),
)


@dataclass(frozen=True, slots=True)
class _Use:
    """What one dispatch does with buffers."""

    arguments: tuple[tuple[Param, BufferArg], ...] = field(default=())

    def reading(self) -> Iterator[str]:
        """The buffers that it may read."""
        return (each.buf for param, each in self.arguments if param.reads)

    def writing(self) -> Iterator[str]:
        """The buffers that it may write."""
        return (each.buf for param, each in self.arguments if param.writes)


def _uses(manifest: Manifest, program: str) -> list[_Use]:
    return [
        _Use(
            tuple(
                (param, arg)
                for param, arg in zip(manifest.kernels[dispatch.kernel].params, dispatch.args, strict=True)
                if isinstance(arg, BufferArg)
            )
        )
        for dispatch in manifest.programs[program].dispatches
    ]


def wrong_sizes(manifest: Manifest, settings: TextSettings, call: TextCall) -> Iterator[str]:
    """Values of symbols that a text caller gives and the program does not take."""
    program = manifest.programs[call.program]
    pages = -(-settings.positions // PAGE)
    wanted = {TOKENS.sym: (call.tokens or 1,), SEQS.sym: (1,), PAGES.sym: (1, pages)}
    for name, values in wanted.items():
        low, high = _range(manifest, program, name)
        yield from (f"program {call.program} for {name} = {value}" for value in values if not low <= value <= high)


def _range(manifest: Manifest, program: Program, name: str) -> tuple[int, int]:
    whole, narrowed = manifest.symbols[name], program.symbols.get(name)
    low = whole.min if narrowed is None or narrowed.min is None else narrowed.min
    high = whole.max if narrowed is None or narrowed.max is None else narrowed.max
    return low, high


def misuses(manifest: Manifest, call: TextCall) -> Iterator[str]:
    """What a program uses that a text caller does not give, and what it leaves alone that the caller relies on."""
    uses = _uses(manifest, call.program)
    read = {name for use in uses for name in use.reading()}
    written = {name for use in uses for name in use.writing()}
    name = f"program {call.program}"
    for buffer in sorted(each for each in read if manifest.buffers[each].class_ == "input"):
        if buffer not in call.inputs:
            when = "between its steps" if buffer in _INPUTS else "for it"
            yield f"{name} reads input {buffer}, which a text caller does not write {when}"
    yield from (f"{name} does not read {each}" for each in call.reads if each not in read)
    yield from (f"{name} does not write {each}" for each in call.writes if each not in written)
    for symbol in sorted(_symbols(manifest, call.program) - set(_GIVEN)):
        yield f"{name} needs symbol {symbol}, which a text caller gives no value"


def _symbols(manifest: Manifest, name: str) -> set[str]:
    """The symbols for which a call of a program must give a value."""
    program = manifest.programs[name]
    expressions: list[Expr] = []
    for dispatch in program.dispatches:
        for arg in dispatch.args:
            match arg:
                case BufferArg(buf=buffer):
                    expressions += manifest.buffers[buffer].shape
                case Sym():
                    expressions.append(arg)
                case ExprArg(expr=expr):
                    expressions.append(expr)
    for kernel in {dispatch.kernel for dispatch in program.dispatches}:
        implementation = manifest.kernels[kernel].impl
        for scratch in implementation.scratch.values():
            expressions += scratch.shape
        for step in implementation.steps:
            expressions += (*step.grid, step.shared_mem)
    return {symbol for expr in expressions for symbol in symbols(expr)}


def wrong_embedding(manifest: Manifest, settings: TextSettings, calls: tuple[TextCall, ...]) -> Iterator[str]:
    """Weights that token ids look up and that have fewer rows than there are ids, or that are not the one named.

    A kernel that is given ids together with weights looks them up in one of these: the embedding that text.json
    names, or another that has a row for each id. Where no kernel is given ids together with the embedding, they are
    looked up in something else.
    """
    found = [
        (call.program, weights)
        for call in calls
        for use in _uses(manifest, call.program)
        if any(name in _IDS for name in use.reading())
        and (weights := [each for _, each in use.arguments if manifest.buffers[each.buf].class_ == "weight"])
    ]
    names = {each.buf for _, weights in found for each in weights}
    if settings.embedding not in names:
        others = f", but with {', '.join(sorted(names))}" if names else ""
        yield f"no kernel is given token ids together with the embedding, weight {settings.embedding}{others}"
    for program, weights in found:
        if not any(_rows(manifest.buffers[each.buf], each.offset) >= settings.vocabulary for each in weights):
            together = ", ".join(each.buf for each in weights)
            yield f"program {program} looks {settings.vocabulary} ids up in {together}, which has fewer rows"


def rows_of(weight: Buffer) -> int:
    """The rows of a weight."""
    return _rows(weight, 0)


def _rows(weight: Buffer, offset: int) -> int:
    """The rows of a weight that lie whole beyond `offset` bytes."""
    extents = [extent for extent in weight.shape if isinstance(extent, int)]
    if not extents or len(extents) < len(weight.shape):
        return 0
    row = DTYPE_BYTES[weight.dtype]
    for extent in extents[1:]:
        row *= extent
    return extents[0] - -(-offset // row)
