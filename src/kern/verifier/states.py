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
    "A state has at least one byte per token or per sequence. A state without bytes has no address to pass to a "
    "kernel.",
    edit("/states/history/bytes_per_token", "0", "1024"),
)
ALIGN_NOT_POWER = Code(
    "K0302",
    "alignment that is not a power of two",
    "Addresses are aligned to powers of two. States always start at multiples of 256 bytes; write `align` only where a "
    "kernel needs more.",
    edit("/states/history", '{"bytes_per_token": 512, "granule": 16, "align": 96}',
         '{"bytes_per_token": 512, "granule": 16, "align": 512}'),
)  # fmt: skip
GRANULE_ZERO = Code(
    "K0303",
    "granule below 1",
    "The size of a state per token is a multiple of its granule, a number of tokens. It is at least 1, which is also "
    "the default.",
    edit("/states/history/granule", "0", "16"),
)
GRANULE_WITH_BYTES = Code(
    "K0304",
    "granule in a state per sequence",
    "A state with `bytes` has a fixed size per sequence, whatever the number of tokens, so there is nothing to round. "
    "Remove the granule, or give `bytes_per_token`.",
    edit("/states/history", '{"bytes": 8192, "granule": 16}', '{"bytes": 8192}'),
)
TWO_SIZES = Code(
    "K0305",
    "two sizes for one state",
    "A state has a size per token (`bytes_per_token`) or a fixed size per sequence (`bytes`), not both. Declare two "
    "states if a kernel needs both.",
    edit("/states/history", '{"bytes_per_token": 512, "bytes": 8192}', '{"bytes": 8192}'),
)
NO_SIZE = Code(
    "K0306",
    "state without a size",
    "Only the manifest can give the size of a state: the runtime does not know its content. Give `bytes_per_token`, or "
    "`bytes` for a fixed size per sequence.",
    edit("/states/history", "{}", '{"bytes_per_token": 512, "granule": 16}'),
)
GRANULE_TOO_LARGE = Code(
    "K0307",
    "granule too large",
    "A state takes at least one granule, bytes_per_token × granule bytes, and byte counts have at most 63 bits. Make "
    "the granule smaller: it is the unit of the state's size, not the size.",
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
        yield TWO_SIZES.at(path, "both `bytes_per_token` and `bytes` are given", "remove one of them")
    elif not sizes:
        yield NO_SIZE.at(path, "neither `bytes_per_token` nor `bytes` is given", "give one of them")
    for key, size in sizes:
        if size < 1:
            yield ZERO_SIZE.at((*path, key), f"`{key}` is {size}", "give 1 or more")


def _granule(state: State, path: Path) -> Iterator[Diagnostic]:
    if state.granule < 1:
        yield GRANULE_ZERO.at((*path, "granule"), f"the granule is {state.granule}", "give 1 or more")
    elif state.bytes is not None and state.bytes_per_token is None and "granule" in state.model_fields_set:
        message = "a granule counts tokens, and this state has a size per sequence"
        yield GRANULE_WITH_BYTES.at((*path, "granule"), message, "remove `granule`")
    elif state.bytes_per_token is not None and state.bytes_per_token * state.granule >= INT_LIMIT:
        message = f"{state.bytes_per_token} × {state.granule} bytes; the limit is 2^63 - 1"
        yield GRANULE_TOO_LARGE.at((*path, "granule"), message, "make the granule smaller")


CODES = (
    ZERO_SIZE, ALIGN_NOT_POWER, GRANULE_ZERO, GRANULE_WITH_BYTES, TWO_SIZES, NO_SIZE, GRANULE_TOO_LARGE,
)  # fmt: skip
