"""The text contract: the names of a manifest that a text caller uses, and the form of text.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from kern.manifest.errors import KernError
from kern.manifest.expressions import INT_LIMIT, Add, Expr, Name, Sym, Wire, show
from kern.manifest.params import DType
from kern.manifest.references import symbol_range
from kern.manifest.types import Buffer, BufferClass, Manifest

PAGE: Final = 16
"""Tokens per page of the state."""
READ_EVERY: Final = 2
"""Steps per read where the device runs ahead: each read delays its next step by microseconds."""
TEXT_FILE: Final = "text.json"
TEXT_VERSION: Final = 3
"""The version of text.json. It is increased if older folders would be read wrongly."""
TOKENIZER_FILE: Final = "tokenizer.json"

TOKENS: Final = Sym(sym="tokens")
SEQS: Final = Sym(sym="seqs")
PAGES: Final = Sym(sym="pages")


class ContractError(KernError, code="text-contract"):
    """The folder is not a text model that kern can run."""


Count: TypeAlias = Annotated[int, Field(ge=0, lt=INT_LIMIT)]
Size: TypeAlias = Annotated[int, Field(ge=1, lt=INT_LIMIT)]

TokenName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z_]+_token$")]


class DecodeBytes(Wire):
    """Bytes that one decode step of one sequence must read, by the provider's count."""

    fixed: Count
    per_context_token: Count


class TextSettings(Wire):
    """text.json: what only a text caller needs.

    `vocabulary` is the number of token ids, `positions` the maximum number of tokens per sequence. `embedding` is the
    weight that is looked up by id; it must have a row for each. `stop_ids` end a text. `bos`, if any, precedes a prompt
    given as text. `special_tokens` are the tokens that a chat template uses by name (`{"eos_token": "<|im_end|>"}`).
    `tokenizer_sha256` is the hash of tokenizer.json; without it the folder has no tokenizer, and prompts are ids.
    """

    version: Literal[3] = TEXT_VERSION
    vocabulary: Size
    positions: Size
    embedding: Name
    stop_ids: tuple[Count, ...]
    bos: Count | None
    chat_template: str | None
    special_tokens: dict[TokenName, str] = Field(default_factory=dict)
    tokenizer_sha256: str | None
    decode_bytes: DecodeBytes

    @model_validator(mode="after")
    def _ids_exist(self) -> Self:
        for name, id in (*(("stop_ids", id) for id in self.stop_ids), ("bos", self.bos)):
            if id is not None and id >= self.vocabulary:
                raise PydanticCustomError("id", "{name} has the id {id}; ids are below {most}", {
                    "name": name, "id": id, "most": self.vocabulary,
                })  # fmt: skip
        return self


def first_error(error: ValidationError) -> str:
    """The first error in settings, and its location."""
    first = error.errors()[0]
    location = ".".join(map(str, first["loc"])) or "text settings"
    return f"{location}: {first['msg']}"


@dataclass(frozen=True, slots=True)
class BufferRequirement:
    """A buffer that a caller reads or writes. None in a shape stands for any constant."""

    name: str
    class_: BufferClass
    dtype: DType
    shape: tuple[Expr | None, ...]

    def describe(self) -> str:
        """The requirement as text: `input token_ids: i64 [tokens]`."""
        shape = ", ".join("R" if extent is None else show(extent) for extent in self.shape)
        return f"{self.class_} {self.name}: {self.dtype} [{shape}]"

    def fits(self, buffer: Buffer) -> bool:
        """Whether `buffer` satisfies the requirement."""
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
"""-1 if no token can be chosen, here and in the carries that hold tokens (`kern.engine.choices`). A program that
receives -1 must read and write only its own memory."""
SLOTS: Final = (
    BufferRequirement("row_slots", "input", "i32", (SEQS,)),
    BufferRequirement("slot_token", "carry", "i64", (None,)),
    BufferRequirement("slot_position", "carry", "i64", (None,)),
    BufferRequirement("token_ring", "carry", "i64", (None, None)),
)
"""What a sequence keeps on the device from call to call is in its slot: the last token, its position, and a ring of
tokens, the one at position p at p modulo the ring's size. The carries have one row per slot.

Row r of a call, or its ragged sequence r, is of slot `row_slots[r]`. With -1 it is a padding row, which changes nothing
that lasts. `begin` makes the tokens in the inputs the last ones of their slots. `decode` computes the state of each
row's last token, and the token that it chooses becomes the last one.
"""
LOGITS_ROWS: Final = BufferRequirement("logits_rows", "input", "i64", (SEQS,))
"""In `step`, the row of the call from which each sequence's next token is chosen; -1: from none. In `nll`, the rows of
the chunk whose targets are given."""
ROUND: Final = ("draft", "verify", "accept", "draft_precompute")
"""The programs of a round, in order. Each is called with as many tokens as the round has rows, `draft` with one fewer
of each sequence.

The last token of a slot is the anchor, whose state the round computes. `draft` writes the anchor and the draft model's
tokens after it to `round_tokens`, and `verify` the target model's choice after each row to `predicted`. `accept` counts
the draft tokens that agree, from the first, and writes the count to `accepted` at `round_count` modulo its length. The
tokens that are accepted and the choice after them become the last tokens of the slot, one after another.
`draft_precompute` updates the draft model's state up to the last. `begin_spec` does what `begin` does, and sets
`round_count` to 0. `prefill` computes the draft model's state too. If fewer positions than rows are left, a caller
continues with `decode`.
"""
WIDE: Final = "_wide"
"""The end of the name of a program that does for more sequences what the one without it does for few."""
COUNTS: Final = (
    BufferRequirement("accepted", "carry", "i32", (None, None)),
    BufferRequirement("round_count", "carry", "i64", (None,)),
)
"""What a sequence that speculates keeps in its slot, besides SLOTS."""
SCORING: Final = (
    LOGITS_ROWS,
    BufferRequirement("targets", "input", "i64", (SEQS,)),
    BufferRequirement("nll", "output", "f32", (SEQS,)),
    BufferRequirement("scored", "carry", "bf16", (TOKENS, None)),
)
"""`score` takes a chunk of tokens. Then `nll`, with the same number of `tokens`, returns for each of `seqs` rows of the
chunk the negative log-likelihood of the row's target."""
DECODING: Final = ("decode", "decode_wide")
"""The programs of a step of one token per sequence. A caller takes the first that allows the number of rows."""
_ROWS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_FEWEST_TOKENS: Final = 16


def row_buckets(limit: int) -> tuple[int, ...]:
    """The numbers of rows to which a call of one token per sequence is padded; a program takes at most `limit`."""
    return (*(rows for rows in _ROWS if rows < limit), limit)


def token_buckets(limit: int) -> tuple[int, ...]:
    """The numbers of tokens to which a call of whole chunks is padded; a program takes at most `limit`."""
    buckets, tokens = [], _FEWEST_TOKENS
    while tokens < limit:
        buckets.append(tokens)
        tokens *= 2
    return (*buckets, limit)


def decoding_program(manifest: Manifest, rows: int) -> str | None:
    """The program for a step of `rows` rows, padding included; None if there is none."""
    for name in DECODING:
        if name in manifest.programs and all(_admits(manifest, name, symbol, rows) for symbol in (TOKENS, SEQS)):
            return name
    return None


def round_calls(rows: int, seqs: int = 1, *, wide: bool = False) -> tuple[tuple[str, int], ...]:
    """The programs of a round of `rows` rows for each of `seqs` sequences, each with its number of tokens.

    `wide`: those that run layers are the ones for many sequences.
    """
    return tuple(
        (name + WIDE * (wide and name != "accept"), seqs * (rows - 1 if name == "draft" else rows)) for name in ROUND
    )


def wide_rounds(manifest: Manifest, seqs: int) -> bool:
    """Whether rounds of `seqs` sequences are those of the wide programs."""
    return not _admits(manifest, "verify", SEQS, seqs)


def most_rounds(manifest: Manifest) -> int:
    """The most sequences of a round; 0 without a draft model."""
    programs = [name for name in ("verify", "verify" + WIDE) if name in manifest.programs]
    return max((symbol_range(manifest, name, SEQS.sym)[1] for name in programs), default=0)


def _admits(manifest: Manifest, program: str, symbol: Sym, value: int) -> bool:
    low, high = symbol_range(manifest, program, symbol.sym)
    return low <= value <= high


def call_limits(manifest: Manifest) -> dict[str, int]:
    """The maximum number of sequences and of tokens per prefill call; empty if this is not a text model."""
    if "prefill" not in manifest.programs or not {TOKENS.sym, SEQS.sym} <= manifest.symbols.keys():
        return {}
    return {
        "sequences": symbol_range(manifest, "prefill", SEQS.sym)[1],
        "chunk": symbol_range(manifest, "prefill", TOKENS.sym)[1],
    }
