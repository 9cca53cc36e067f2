"""Rule 3: the size, alignment and granule of states."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import INT_LIMIT
from kern.manifest.types import State
from kern.verifier.example import edit
from kern.verifier.scope import Scope

ZERO_SIZE = Code(
    "K0301",
    "state without bytes",
    "A state is memory and has at least one byte, per token or per sequence. A state of no size would give kernels an "
    "address that nothing stands behind.",
    edit("/states/history/bytes_per_token", "0", "1024"),
)
ALIGN_NOT_POWER = Code(
    "K0302",
    "alignment that is not a power of two",
    "Addresses are aligned to powers of two. States start at multiples of 256 bytes anyway; ask for more only where a "
    "kernel needs it.",
    edit("/states/history", '{"bytes_per_token": 512, "granule": 16, "align": 96}',
         '{"bytes_per_token": 512, "granule": 16, "align": 512}'),
)  # fmt: skip
GRANULE_ZERO = Code(
    "K0303",
    "granule below 1",
    "The granule is the number of tokens that a state's capacity is rounded up to a multiple of. It is at least 1, "
    "which is also what it is where it is left out.",
    edit("/states/history/granule", "0", "16"),
)
GRANULE_WITH_BYTES = Code(
    "K0304",
    "granule of a state per sequence",
    "A state given by `bytes` has one size for each sequence and does not grow with tokens, so there is nothing to "
    "round up. Take the granule out, or give `bytes_per_token`.",
    edit("/states/history", '{"bytes": 8192, "granule": 16}', '{"bytes": 8192}'),
)
TWO_SIZES = Code(
    "K0305",
    "two sizes of one state",
    "A state grows with tokens (`bytes_per_token`) or has a fixed size for each sequence (`bytes`); it cannot do "
    "both. Declare two states where a kernel needs the two kinds.",
    edit("/states/history", '{"bytes_per_token": 512, "bytes": 8192}', '{"bytes": 8192}'),
)
NO_SIZE = Code(
    "K0306",
    "state without a size",
    "Nobody but the manifest can say how large a state is: the runtime does not know what is in it. Give "
    "`bytes_per_token`, or `bytes` for a fixed size per sequence.",
    edit("/states/history", "{}", '{"bytes_per_token": 512, "granule": 16}'),
)
GRANULE_TOO_LARGE = Code(
    "K0307",
    "granule of too many bytes",
    "One granule, bytes_per_token × granule, is the least that a state takes, and byte counts are kept in 63 bits. "
    "Make the granule smaller: it is a step of the capacity, not the capacity itself.",
    edit("/states/history/granule", "18014398509481984", "32"),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 3."""
    for name, state in scope.manifest.states.items():
        yield from _size(state, ("states", name))
        yield from _granule(state, ("states", name))
        if state.align < 1 or state.align & (state.align - 1):
            message = f"{state.align} is not a power of two"
            yield ALIGN_NOT_POWER.at(("states", name, "align"), message, "write 256, 512, 1024, …")


def _size(state: State, path: Path) -> Iterator[Diagnostic]:
    sizes = [(key, size) for key in ("bytes_per_token", "bytes") if (size := getattr(state, key)) is not None]
    if len(sizes) == 2:
        yield TWO_SIZES.at(path, "both `bytes_per_token` and `bytes` are given", "take one of them out")
    elif not sizes:
        yield NO_SIZE.at(path, "neither `bytes_per_token` nor `bytes` is given", "give one of them")
    for key, size in sizes:
        if size < 1:
            yield ZERO_SIZE.at((*path, key), f"a size of {size} bytes", "give 1 or more")


def _granule(state: State, path: Path) -> Iterator[Diagnostic]:
    if state.granule < 1:
        yield GRANULE_ZERO.at((*path, "granule"), f"a granule of {state.granule} tokens", "give 1 or more")
    elif state.bytes is not None and state.bytes_per_token is None and "granule" in state.model_fields_set:
        message = "a granule counts tokens, and this state has its size per sequence"
        yield GRANULE_WITH_BYTES.at((*path, "granule"), message, "take `granule` out")
    elif state.bytes_per_token is not None and state.bytes_per_token * state.granule >= INT_LIMIT:
        message = f"{state.bytes_per_token} × {state.granule} bytes do not fit in 63 bits"
        yield GRANULE_TOO_LARGE.at((*path, "granule"), message, "make the granule smaller")


CODES = (
    ZERO_SIZE, ALIGN_NOT_POWER, GRANULE_ZERO, GRANULE_WITH_BYTES, TWO_SIZES, NO_SIZE, GRANULE_TOO_LARGE,
)  # fmt: skip
