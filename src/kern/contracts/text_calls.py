"""How a text caller calls a manifest's programs, and which of its buffers these must read and write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from kern.contracts.text import PAGE, PAGES, SEQS, SLOTS, STEP_INPUTS, TOKENS, TextSettings, round_calls
from kern.manifest.effects import buffers_used, dispatch_accesses
from kern.manifest.params import DTYPE_BYTES
from kern.manifest.references import program_symbols, symbol_range
from kern.manifest.types import Buffer, Manifest

_GIVEN: Final = (TOKENS.sym, SEQS.sym, PAGES.sym)
_KEPT: Final = tuple(each.name for each in SLOTS if each.class_ == "carry")
"""The carries of the slots."""
_INPUTS: Final = frozenset({*(each.name for each in STEP_INPUTS), "row_slots"})
_UNCHANGED: Final = frozenset({"block_table", "cu_seqlens_q", "row_slots"})
"""Inputs that are the same in each step of a sequence: the only ones that a self-feeding program may read."""
_IDS: Final = ("token_ids", "row_ids", "step_token", "slot_token", "round_tokens")
"""Buffers of ids that are looked up in the embedding."""


@dataclass(frozen=True, slots=True)
class TextCall:
    """One program as a text caller runs it.

    `tokens` is the value of that symbol; None: any value that the program allows, from 1. Up to `rows` sequences are in
    one call. The program may read `inputs`; it must read `reads` and write `writes`, or what the caller writes and
    reads would have no effect.
    """

    program: str
    tokens: int | None
    inputs: frozenset[str] = _INPUTS
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    rows: int = 1


def generation_calls(begins: bool) -> tuple[TextCall, ...]:
    """The calls of generation; with `begins`, decode feeds itself after program `begin`."""
    prefill = TextCall("prefill", None, reads=("token_ids",))
    if not begins:
        return prefill, TextCall("decode", 1, reads=("token_ids",), writes=("next_token",))
    begin = TextCall("begin", 1, reads=("token_ids", "positions"), writes=_KEPT)
    return prefill, begin, TextCall("decode", 1, _UNCHANGED, writes=("next_token", *_KEPT))


def batch_calls(slots: int, programs: Mapping[int, str]) -> tuple[TextCall, ...]:
    """The calls for up to `slots` sequences at once, in addition to those of generation.

    `programs` are those for a step of one token per sequence, by the largest number of rows of each.
    """
    chosen = ("next_token", *_KEPT)
    decoding = (
        TextCall(name, rows, _UNCHANGED, reads=("row_slots",), writes=chosen, rows=rows)
        for rows, name in programs.items()
    )
    step = TextCall(
        "step",
        None,
        _INPUTS | {"logits_rows"},
        reads=("token_ids", "positions", "row_slots", "logits_rows"),
        writes=chosen,
        rows=slots,
    )
    return (
        TextCall("prefill", None, rows=slots),
        TextCall("begin", slots, reads=("row_slots",), rows=slots),
        *decoding,
        step,
    )


def speculation_calls(rows: int) -> tuple[TextCall, ...]:
    """The calls of rounds of `rows` rows, in addition to those of generation."""
    writes = {
        "draft": ("round_tokens",),
        "verify": ("predicted",),
        "accept": ("accepted", "token_ring", "slot_token", "slot_position"),
    }
    reads = {"accept": ("row_slots",)}
    begun = "slot_token", "slot_position", "round_count"
    begin = TextCall("begin_spec", 1, _INPUTS, reads=("token_ids", "row_slots"), writes=begun)
    calls = (
        TextCall(name, tokens, _UNCHANGED, reads=reads.get(name, ()), writes=writes.get(name, ()))
        for name, tokens in round_calls(rows)
    )
    return begin, *calls


SCORING_CALLS: Final = (
    TextCall("score", None, reads=("token_ids",), writes=("scored",)),
    TextCall(
        "nll", None, frozenset({"logits_rows", "targets"}), reads=("scored", "logits_rows", "targets"), writes=("nll",)
    ),
)


def wrong_sizes(manifest: Manifest, settings: TextSettings, call: TextCall) -> Iterator[str]:
    """Symbol values that a text caller passes and the program does not allow."""
    pages = -(-settings.positions // PAGE)
    wanted = {TOKENS.sym: {call.tokens or 1}, SEQS.sym: {1, call.rows}, PAGES.sym: {1, pages}}
    for name, values in wanted.items():
        low, high = symbol_range(manifest, call.program, name)
        wrong = sorted(value for value in values if not low <= value <= high)
        yield from (f"program {call.program} for {name} = {value}" for value in wrong)


def misuses(manifest: Manifest, call: TextCall) -> Iterator[str]:
    """What a program uses and a text caller does not provide, and what it fails to read or write."""
    read, written = buffers_used(manifest, call.program)
    name = f"program {call.program}"
    for buffer in sorted(each for each in read if manifest.buffers[each].class_ == "input"):
        if buffer not in call.inputs:
            when = "between its steps" if buffer in _INPUTS else "for it"
            yield f"{name} reads input {buffer}, which a text caller does not write {when}"
    yield from (f"{name} does not read {each}" for each in call.reads if each not in read)
    yield from (f"{name} does not write {each}" for each in call.writes if each not in written)
    for symbol in sorted(program_symbols(manifest)[call.program] - set(_GIVEN)):
        yield f"{name} needs symbol {symbol}, to which a text caller gives no value"


def wrong_embedding(manifest: Manifest, settings: TextSettings, calls: tuple[TextCall, ...]) -> Iterator[str]:
    """Weights in which token ids are looked up and which have too few rows or are not the embedding of text.json.

    A kernel that takes ids and weights looks them up in one of these: the embedding, or another weight that has a row
    for each id. If no kernel takes ids and the embedding, ids are looked up in something else.
    """
    found = []
    for call in calls:
        for dispatch in manifest.programs[call.program].dispatches:
            accesses = dispatch_accesses(manifest.kernels[dispatch.kernel], dispatch)
            given = [access for access in accesses if access.kind == "buffer"]
            weights = [access for access in given if manifest.buffers[access.name].class_ == "weight"]
            if weights and any(access.reads and access.name in _IDS for access in given):
                found.append((call.program, weights))
    names = {each.name for _, weights in found for each in weights}
    if settings.embedding not in names:
        others = f", but with {', '.join(sorted(names))}" if names else ""
        yield f"no kernel takes token ids together with the embedding, weight {settings.embedding}{others}"
    for program, weights in found:
        if not any(rows_of(manifest.buffers[each.name], each.offset) >= settings.vocabulary for each in weights):
            together = ", ".join(each.name for each in weights)
            yield f"program {program} looks {settings.vocabulary} ids up in {together}, which has fewer rows"


def rows_of(weight: Buffer, offset: int = 0) -> int:
    """The number of complete rows of a weight after `offset` bytes."""
    extents = [extent for extent in weight.shape if isinstance(extent, int)]
    if not extents or len(extents) < len(weight.shape):
        return 0
    row = DTYPE_BYTES[weight.dtype] * prod(extents[1:])
    return extents[0] - -(-offset // row)
