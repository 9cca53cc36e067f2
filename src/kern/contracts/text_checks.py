"""Whether a manifest satisfies the text contract: what a text caller writes, runs and reads exists and is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kern.contracts.text import (
    COUNTS,
    LOGITS_ROWS,
    NEXT_TOKEN,
    PAGE,
    PAGES,
    READ_EVERY,
    ROUND,
    SCORING,
    SEQS,
    SLOTS,
    STEP_INPUTS,
    TOKENS,
    BufferRequirement,
    ContractError,
    TextSettings,
    decoding_program,
    row_buckets,
)
from kern.contracts.text_calls import (
    SCORING_CALLS,
    TextCall,
    batch_calls,
    generation_calls,
    misuses,
    rows_of,
    speculation_calls,
    wrong_embedding,
    wrong_sizes,
)
from kern.manifest.expressions import Expr, Mul
from kern.manifest.types import Manifest

_BATCHES: Final = "generate several texts at once"


def check_generation(manifest: Manifest, settings: TextSettings) -> None:
    """Raises ContractError with everything that is missing for generation, or else with everything used wrongly."""
    begins = "begin" in manifest.programs
    buffers = (*STEP_INPUTS, NEXT_TOKEN, *(SLOTS if begins else ()))
    _check(manifest, settings, "generate text", ("prefill", "decode"), buffers, generation_calls(begins))


def check_batches(manifest: Manifest, settings: TextSettings) -> int:
    """The number of slots: the sequences that can be generated at once, each call a choice of them.

    Raises ContractError with everything that is missing for it, or else with everything used wrongly.
    """
    check_generation(manifest, settings)
    missing = list(_missing(manifest, ("begin", "step"), (*SLOTS, LOGITS_ROWS)))
    if missing:
        raise _lacking(_BATCHES, missing)
    slots = manifest.buffers["slot_token"].shape[0]
    assert isinstance(slots, int)
    buckets = {rows: decoding_program(manifest, rows) for rows in row_buckets(slots)}
    refused = [f"program decode for tokens = seqs = {rows}" for rows, name in buckets.items() if name is None]
    if refused:
        raise _lacking(_BATCHES, refused)
    programs = {name: rows for rows, name in buckets.items() if name is not None}
    calls = batch_calls(slots, {rows: name for name, rows in programs.items()})
    _check(manifest, settings, _BATCHES, (), (), calls)
    return slots


def check_speculation(manifest: Manifest, settings: TextSettings) -> int:
    """The rows of a round: the anchor and the draft tokens after it; a round returns at most as many tokens.

    Raises ContractError if there is no draft model, or with everything that is missing for speculation.
    """
    if "begin_spec" not in manifest.programs:
        raise ContractError(
            "this folder has no draft model to speculate with",
            "build it with `kern build MODEL --draft …`, or generate without --spec",
        )
    check_generation(manifest, settings)
    rows = _round_rows(manifest)
    if rows is None:
        raise _lacking("speculate", [f"carry round_tokens: i64 [{SEQS.sym} * rows], two rows or more"])
    buffers = (*SLOTS, *_speculation(rows))
    _check(manifest, settings, "speculate", ("begin", *ROUND), buffers, speculation_calls(rows))
    rings = list(_short_rings(manifest, rows))
    if rings:
        raise _lacking("speculate", rings)
    return rows


def check_scoring(manifest: Manifest, settings: TextSettings) -> None:
    """Raises ContractError with everything that is missing for scoring, or else with everything used wrongly."""
    _check(manifest, settings, "score text", ("score", "nll"), (*STEP_INPUTS, *SCORING), SCORING_CALLS)


def _check(
    manifest: Manifest,
    settings: TextSettings,
    purpose: str,
    programs: tuple[str, ...],
    buffers: tuple[BufferRequirement, ...],
    calls: tuple[TextCall, ...],
) -> None:
    missing = [*_missing(manifest, programs, buffers), *_too_small(manifest, settings)]
    if missing:
        raise _lacking(purpose, missing)
    small = [each for call in calls for each in wrong_sizes(manifest, settings, call)]
    if small:
        raise _lacking(purpose, small)
    misused = [
        *wrong_embedding(manifest, settings, calls),
        *(each for call in calls for each in misuses(manifest, call)),
    ]
    if misused:
        raise _refused(f"cannot {purpose}: {'; '.join(misused)}")


def _lacking(purpose: str, missing: list[str]) -> ContractError:
    return _refused(f"cannot {purpose}; it lacks {'; '.join(missing)}")


def _refused(why: str) -> ContractError:
    return ContractError(
        f"this folder {why}", "use a folder that satisfies the text contract, or run this one's programs with kern.load"
    )


def _missing(manifest: Manifest, programs: tuple[str, ...], buffers: tuple[BufferRequirement, ...]) -> Iterator[str]:
    for symbol in (TOKENS.sym, SEQS.sym, PAGES.sym):
        if symbol not in manifest.symbols:
            yield f"symbol {symbol}"
    for name in programs:
        if name not in manifest.programs:
            yield f"program {name}"
    for asked in buffers:
        found = manifest.buffers.get(asked.name)
        if found is None or not asked.fits(found):
            yield asked.describe()
        elif asked in SLOTS and asked.class_ == "carry" and found.shape[0] != _slots(manifest):
            yield f"as many rows in {asked.name} as in slot_token"
        elif asked.name == "token_ring" and isinstance(found.shape[1], int) and found.shape[1] < READ_EVERY:
            yield f"{READ_EVERY} entries in token_ring, one for each token that is read at once"


def _slots(manifest: Manifest) -> Expr | None:
    slot_token = manifest.buffers.get("slot_token")
    return slot_token.shape[0] if slot_token is not None and slot_token.shape else None


def _too_small(manifest: Manifest, settings: TextSettings) -> Iterator[str]:
    """Ids and positions of text.json that exceed the manifest's: they would be read out of bounds."""
    table = manifest.buffers.get(settings.embedding)
    if table is None or table.class_ != "weight" or rows_of(table) < settings.vocabulary:
        yield f"weight {settings.embedding}: {settings.vocabulary} rows, one for each id"
    pages = manifest.symbols.get(PAGES.sym)
    if pages is not None and pages.max * PAGE < settings.positions:
        yield f"{PAGES.sym} up to {-(-settings.positions // PAGE)} for {settings.positions} positions"


def _round_rows(manifest: Manifest) -> int | None:
    """The rows of `round_tokens` per sequence; None if its shape has another form."""
    buffer = manifest.buffers.get("round_tokens")
    match buffer.shape if buffer is not None else ():
        case (Mul(mul=(extent, rows)),) if extent == SEQS and rows >= 2:
            return rows
    return None


def _speculation(rows: int) -> tuple[BufferRequirement, ...]:
    """The buffers that a caller of rounds of `rows` rows reads."""
    each_row = (Mul(mul=(SEQS, rows)),)
    return (
        BufferRequirement("round_tokens", "carry", "i64", each_row),
        BufferRequirement("predicted", "carry", "i64", each_row),
        *COUNTS,
    )


def _short_rings(manifest: Manifest, rows: int) -> Iterator[str]:
    """Rings that are too short: for the tokens of two rounds, or for the counts of all rounds in the token ring."""
    ring, counts = (manifest.buffers[name].shape[1] for name in ("token_ring", "accepted"))
    assert isinstance(ring, int)
    assert isinstance(counts, int)
    if ring < 2 * rows:
        yield f"{2 * rows} entries in token_ring, for two rounds"
    if counts < ring // rows:
        yield f"{ring // rows} entries in accepted, one for each round in token_ring"
