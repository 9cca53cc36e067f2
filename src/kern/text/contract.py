"""The text contract: the names by which a text caller drives a manifest, and what stands in text.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from kern.manifest.errors import KernError
from kern.manifest.expressions import INT_LIMIT, Add, Expr, Mul, Name, Sym, Wire, show
from kern.manifest.params import DType
from kern.manifest.types import Buffer, BufferClass, Manifest

PAGE: Final = 16
"""Tokens in a page of the state."""
TEXT_FILE: Final = "text.json"
TOKENIZER_FILE: Final = "tokenizer.json"

TOKENS: Final = Sym(sym="tokens")
SEQS: Final = Sym(sym="seqs")
PAGES: Final = Sym(sym="pages")


class ContractError(KernError):
    """A folder that a text caller cannot drive."""

    code: ClassVar[str] = "text-contract"
    exit_code: ClassVar[int] = 1


Count: TypeAlias = Annotated[int, Field(ge=0, lt=INT_LIMIT)]
Size: TypeAlias = Annotated[int, Field(ge=1, lt=INT_LIMIT)]


class DecodeBytes(Wire):
    """Bytes that one decode step of one sequence must read, as the provider counts them."""

    fixed: Count
    per_context_token: Count


class TextSettings(Wire):
    """text.json: what only a text caller needs.

    `vocabulary` is the number of token ids, `positions` the most tokens that a sequence may have. `embedding` is the
    weight that is looked up by id: what keeps ids within it is that it has a row for each. `bos` is put before a
    prompt given as text; None: nothing is. `tokenizer_sha256` is that of tokenizer.json, None where the folder has
    none and prompts are ids.
    """

    vocabulary: Size
    positions: Size
    embedding: Name
    stop_ids: tuple[Count, ...]
    bos: Count | None
    chat_template: str | None
    tokenizer_sha256: str | None
    decode_bytes: DecodeBytes

    @model_validator(mode="after")
    def _ids_exist(self) -> Self:
        for name, id in (*(("stop_ids", id) for id in self.stop_ids), ("bos", self.bos)):
            if id is not None and id >= self.vocabulary:
                raise PydanticCustomError("id", "{name} has {id}, ids are below {most}", {
                    "name": name, "id": id, "most": self.vocabulary,
                })  # fmt: skip
        return self


def fault(error: ValidationError) -> str:
    """The first fault of settings, and its place."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "text settings"
    return f"{place}: {first['msg']}"


@dataclass(frozen=True, slots=True)
class BufferRequirement:
    """A buffer that a caller reads or writes. A shape entry None is any constant."""

    name: str
    class_: BufferClass
    dtype: DType
    shape: tuple[Expr | None, ...]

    def describe(self) -> str:
        """As the contract's table has it: `input token_ids: i64 [tokens]`."""
        shape = ", ".join("R" if extent is None else show(extent) for extent in self.shape)
        return f"{self.class_} {self.name}: {self.dtype} [{shape}]"

    def fits(self, buffer: Buffer) -> bool:
        """Whether `buffer` is what is asked for."""
        return (
            (buffer.class_, buffer.dtype) == (self.class_, self.dtype)
            and len(buffer.shape) == len(self.shape)
            and all(
                isinstance(found, int) if asked is None else found == asked
                for asked, found in zip(self.shape, buffer.shape, strict=True)
            )
        )


STEP_INPUTS: Final = (
    BufferRequirement("token_ids", "input", "i64", (TOKENS,)),
    BufferRequirement("positions", "input", "i64", (TOKENS,)),
    BufferRequirement("slot_mapping", "input", "i64", (TOKENS,)),
    BufferRequirement("block_table", "input", "i32", (SEQS, PAGES)),
    BufferRequirement("seq_lens", "input", "i32", (SEQS,)),
    BufferRequirement("cu_seqlens_q", "input", "i32", (Add(add=(SEQS, 1)),)),
)
NEXT_TOKEN: Final = BufferRequirement("next_token", "output", "i64", (SEQS,))
CARRIES: Final = (
    BufferRequirement("step_token", "carry", "i64", (SEQS,)),
    BufferRequirement("step_position", "carry", "i64", (SEQS,)),
    BufferRequirement("step_slot", "carry", "i64", (SEQS,)),
    BufferRequirement("step_length", "carry", "i32", (SEQS,)),
    BufferRequirement("token_ring", "carry", "i64", (SEQS, None)),
)
ROUND: Final = ("draft_precompute", "draft", "verify", "accept")
"""The programs of a round, in their order, each at as many tokens as the round has rows, `draft` at one fewer.

Row 0 of `round_tokens` is the anchor, the last token known, whose state the round is the first to make.
`draft_precompute` brings the draft's state up to the anchor, `draft` puts its tokens into the rows behind, `verify`
puts what the target says after each row into `predicted`. `accept` counts the drafts that agree, from the first, and
puts the count into `accepted` at `round_count` modulo its length; the tokens at positions up to the next anchor's into
`token_ring`, each at its position modulo the ring's size; the next anchor into `round_tokens` and its position into
`step_position`. `begin_spec` makes the token in the inputs the first anchor, and `round_count` 0. `prefill` leaves the
draft's state too. Where fewer places than rows are left, a caller goes on with `begin` and `decode`.
"""
SCORING: Final = (
    BufferRequirement("targets", "input", "i64", (TOKENS,)),
    BufferRequirement("nll", "output", "f32", (TOKENS,)),
)


def check_generation(manifest: Manifest, settings: TextSettings) -> None:
    """Raises ContractError, listing everything that generation lacks."""
    buffers = (*STEP_INPUTS, NEXT_TOKEN, *(CARRIES if "begin" in manifest.programs else ()))
    _check(manifest, settings, "generate text", ("prefill", "decode"), buffers)


def check_speculation(manifest: Manifest, settings: TextSettings) -> int:
    """The rows of a round: the anchor and the drafts after it, the most tokens that a round gives.

    Raises ContractError where there is no draft model, or listing everything that driving one lacks.
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
    _check(manifest, settings, "speculate", ("begin", *ROUND), (*CARRIES, *_speculation(rows)))
    faults = [*_wrong_sizes(manifest, rows), *_short_rings(manifest, rows)]
    if faults:
        raise _lacking("speculate", faults)
    return rows


def round_calls(rows: int) -> tuple[tuple[str, int], ...]:
    """The programs of a round of `rows` rows, each with the tokens that it is called with."""
    return tuple((name, rows - 1 if name == "draft" else rows) for name in ROUND)


def _round_rows(manifest: Manifest) -> int | None:
    """The rows that `round_tokens` has for each sequence; None where it does not say."""
    buffer = manifest.buffers.get("round_tokens")
    match buffer.shape if buffer is not None else ():
        case (Mul(mul=(extent, rows)),) if extent == SEQS and rows >= 2:
            return rows
    return None


def _speculation(rows: int) -> tuple[BufferRequirement, ...]:
    """What a caller of rounds of `rows` rows reads."""
    each_row = (Mul(mul=(SEQS, rows)),)
    return (
        BufferRequirement("round_tokens", "carry", "i64", each_row),
        BufferRequirement("predicted", "carry", "i64", each_row),
        BufferRequirement("accepted", "carry", "i32", (SEQS, None)),
        BufferRequirement("round_count", "carry", "i64", (SEQS,)),
    )


def _wrong_sizes(manifest: Manifest, rows: int) -> Iterator[str]:
    """Programs that do not take as many tokens as a round gives them."""
    whole = manifest.symbols[TOKENS.sym]
    for name, tokens in (("begin_spec", 1), *round_calls(rows)):
        narrowed = manifest.programs[name].symbols.get(TOKENS.sym)
        low = whole.min if narrowed is None or narrowed.min is None else narrowed.min
        high = whole.max if narrowed is None or narrowed.max is None else narrowed.max
        if not low <= tokens <= high:
            yield f"program {name} for {TOKENS.sym} = {tokens}"


def _short_rings(manifest: Manifest, rows: int) -> Iterator[str]:
    """Rings that do not hold the tokens of two rounds, or the counts of as many rounds as the tokens' ring holds."""
    ring, counts = (manifest.buffers[name].shape[1] for name in ("token_ring", "accepted"))
    assert isinstance(ring, int)
    assert isinstance(counts, int)
    if ring < 2 * rows:
        yield f"{2 * rows} places in token_ring, for two rounds"
    if counts < ring // rows:
        yield f"{ring // rows} places in accepted, for as many rounds as token_ring holds"


def call_limits(manifest: Manifest) -> dict[str, int]:
    """The most sequences of a call, and the most tokens of a prefill; empty for what is not a text model."""
    program = manifest.programs.get("prefill")
    symbols = manifest.symbols
    if program is None or not {TOKENS.sym, SEQS.sym} <= symbols.keys():
        return {}
    narrowed = {symbol: bounds.max for symbol, bounds in program.symbols.items() if bounds.max is not None}
    return {
        "sequences": symbols[SEQS.sym].max,
        "chunk": narrowed.get(TOKENS.sym, symbols[TOKENS.sym].max),
    }


def check_scoring(manifest: Manifest, settings: TextSettings) -> None:
    """Raises ContractError, listing everything that scoring lacks."""
    _check(manifest, settings, "score text", ("score",), (*STEP_INPUTS, *SCORING))


def _check(
    manifest: Manifest,
    settings: TextSettings,
    purpose: str,
    programs: tuple[str, ...],
    buffers: tuple[BufferRequirement, ...],
) -> None:
    missing = [*_missing(manifest, programs, buffers), *_too_small(manifest, settings)]
    if missing:
        raise _lacking(purpose, missing)


def _lacking(purpose: str, missing: list[str]) -> ContractError:
    return ContractError(
        f"this folder cannot {purpose}; it lacks " + "; ".join(missing),
        "give a folder that keeps the text contract, or drive this one with kern.load",
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


def _too_small(manifest: Manifest, settings: TextSettings) -> Iterator[str]:
    """What text.json promises beyond what the manifest holds: ids and positions past it would be read anyway."""
    table = manifest.buffers.get(settings.embedding)
    rows = table.shape[0] if table is not None and table.class_ == "weight" else 0
    if not isinstance(rows, int) or rows < settings.vocabulary:
        yield f"weight {settings.embedding}: {settings.vocabulary} rows, one an id"
    pages = manifest.symbols.get(PAGES.sym)
    if pages is not None and pages.max * PAGE < settings.positions:
        yield f"{PAGES.sym} up to {-(-settings.positions // PAGE)} for {settings.positions} positions"
