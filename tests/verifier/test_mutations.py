"""Valid manifests broken in generated ways: each is refused near the broken place, or listed as still valid."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import pytest
from pydantic import ValidationError

from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.reading import read
from kern.manifest.types import Manifest
from kern.verifier import check
from support.mutations import Mutation, at, mutations, places
from support.valid_manifests import documents

SMALL = ("example", "original-form")
EVERY = {"smollm2": 7, "qwen3-4b": 11}
"""Of the large manifests only every so many places are looked at."""

STEP = "kernels/*/impl/steps/#"
DISPATCH = "programs/*/dispatches/#"
SHAPES = ("buffers/*/shape/#", "kernels/*/impl/scratch/*/shape/#")
GRID = f"{STEP}/grid/#"
LITERALS = (f"{STEP}/args/#/literal", f"{DISPATCH}/args/#/literal")

STILL_VALID: Mapping[str, set[tuple[str, str]]] = {
    "a shape only fixes bytes, and a kernel that a file holds does not say how many it needs": {
        *((operation, shape) for shape in SHAPES for operation in ("as number", "drop", "duplicate", "off by one")),
        *(("swap with the next", shape) for shape in SHAPES),
        ("enlarge", "states/*/bytes_per_token"),
        ("off by one", "states/*/bytes_per_token"),
        ("off by one", "states/*/granule"),
    },
    "the launch is another one, within the limits of devices": {
        ("off by one", f"{STEP}/block/#"),
        ("swap with the next", f"{STEP}/block/#"),
        ("off by one", GRID),
        ("swap with the next", GRID),
        ("enlarge", f"{GRID}/ceil_div/#"),
        ("off by one", f"{GRID}/ceil_div/#"),
        ("off by one", f"{GRID}/ceil_div/#/mul/#"),
        *((operation, f"{STEP}/shared_mem") for operation in ("drop", "off by one", "zero")),
    },
    "the kernel gets another number of the same type": {
        *((op, literal) for literal in LITERALS for op in ("enlarge", "negate", "off by one", "zero")),
        ("as number", f"{DISPATCH}/args/#/expr/mul/#"),
        ("off by one", f"{DISPATCH}/args/#/expr/mul/#"),
    },
    "another place inside the same array or state": {
        *((operation, f"{DISPATCH}/args/#/offset") for operation in ("drop", "off by one", "zero")),
    },
    "two arguments of one type change places": {
        ("swap with the next", f"{STEP}/args/#"),
        ("swap with the next", f"{DISPATCH}/args/#"),
    },
    "work is done twice, in another order, or not at all, and nothing depends on it": {
        ("duplicate", STEP),
        ("duplicate", DISPATCH),
        ("drop", DISPATCH),
        ("swap with the next", DISPATCH),
        ("drop", "programs/*"),
    },
    "names and labels that mean nothing to the runtime, or that only files can contradict": {
        ("blank", "meta/model"),
        ("misspell", "meta/model"),
        ("rename", "programs/*"),
        *((operation, f"{DISPATCH}/label") for operation in ("blank", "drop", "misspell")),
        ("misspell", f"{STEP}/symbol"),
        ("misspell", f"{STEP}/cubin"),
        ("drop", f"{STEP}/cubin"),
    },
    "bounds are other ones, and everything still fits within them": {
        *(("drop", place) for place in ("symbols/*/min", "programs/*/symbols", "programs/*/symbols/*")),
        ("drop", "programs/*/symbols/*/max"),
        ("off by one", "programs/*/symbols/*/max"),
        ("off by one", "symbols/*/min"),
        ("off by one", "symbols/*/max"),
    },
    "the other class or direction asks for no more than the programs do": {
        *((f"make {class_}", "buffers/*/class") for class_ in ("carry", "input", "output", "workspace")),
        *((f"make {direction}", f"{STEP}/params/#") for direction in ("out", "inout")),
        ("make inout", "kernels/*/params/#"),
    },
}
LISTED = {category: reason for reason, categories in STILL_VALID.items() for category in categories}

FORM = {"as text", "as true", "as float", "as number", "blank", "rename", "flip", "overflow"}
"""Operations that reading alone refuses; the small manifests suffice for them."""


def diagnostics(mutation: Mutation) -> tuple[Diagnostic, ...]:
    data = json.dumps(mutation.apply()).encode()
    try:
        return check(Manifest.model_validate_json(data))
    except ValidationError:
        return read(data).diagnostics


def is_read(mutation: Mutation) -> bool:
    """Whether the form still holds: what only the form forbids is tried on the small manifests."""
    try:
        Manifest.model_validate_json(json.dumps(mutation.apply()))
    except ValidationError:
        return False
    return True


@cache
def by_category(name: str) -> Mapping[tuple[str, str], list[Mutation]]:
    found: dict[tuple[str, str], list[Mutation]] = defaultdict(list)
    for mutation in mutations(documents()[name], EVERY.get(name, 1)):
        if name in SMALL or mutation.operation not in FORM:
            found[mutation.category].append(mutation)
    return found


def chosen(name: str, most: int) -> list[Mutation]:
    """One mutation of each category, at a place that the category's name picks; at most `most`."""
    picked = []
    for category, among in by_category(name).items():
        digest = zlib.crc32(f"{name} {category}".encode())
        picked.append((digest, among[digest % len(among)]))
    ordered = (mutation for _, mutation in sorted(picked, key=lambda pair: pair[0]))
    return list(islice((m for m in ordered if name in SMALL or is_read(m)), most))


def names_in(value: Any) -> Iterator[str]:
    """Everything in `value` that may be a name."""
    if isinstance(value, str):
        yield value
    yield from (str(path[-1]) for path, _ in places(value))
    yield from (inner for _, inner in places(value) if isinstance(inner, str))


def concerns(document: Any, diagnostic: Diagnostic) -> set[str]:
    """The names at a diagnostic's place, and in the declarations of those."""
    path = diagnostic.path
    value = at(document, path)
    names = {str(token) for token in path if isinstance(token, str)} | set(names_in(value))
    if len(path) > 3 and path[0] == "programs" and path[2] == "dispatches":
        dispatch = at(document, path[:4])
        names |= {dispatch["kernel"]} | set(names_in(dispatch))
    for section in ("symbols", "states", "buffers", "kernels"):
        for name in list(names):
            names |= set(names_in(document.get(section, {}).get(name)))
    return names - FIELDS


FIELDS = {
    "symbols", "states", "buffers", "kernels", "programs", "dispatches", "args", "impl", "steps", "params", "shape",
    "dtype", "class", "buf", "sym", "state", "offset", "kernel", "label", "grid", "block", "symbol", "arg", "scratch",
    "i32", "u32", "i64", "f32", "u8", "bf16", "min", "max", "expr", "mul", "ceil_div", "add", "meta", "version",
    "input", "output", "weight", "workspace", "carry", "cubin", "sha256", "shared_mem", "keep", "align", "granule",
    "bytes", "bytes_per_token", "f16", "fp8e4m3",
}  # fmt: skip


def starts(path: Path, prefix: Path) -> bool:
    return path[: len(prefix)] == prefix


def near(mutation: Mutation, diagnostic: Diagnostic) -> bool:
    """Whether a diagnostic points at the mutated place, at what holds it, or at a user of what was mutated."""
    path, place = mutation.path, diagnostic.path
    parent = path[:-1]
    if starts(place, path) or place == parent or (len(place) >= 2 and starts(path, place)) or starts(place, parent):
        return True
    document = mutation.apply()
    names = {token for token in path[1:2] if isinstance(token, str)}
    names |= {str(token) for token in path if isinstance(token, str)}
    names |= set(names_in(mutation.before)) | set(names_in(at(document, path)))
    return bool((names - FIELDS) & concerns(document, diagnostic))


@pytest.mark.parametrize(
    ("name", "most"), [("example", 400), ("original-form", 200), ("smollm2", 16), ("qwen3-4b", 10)]
)
def test_a_broken_manifest_is_refused_near_the_broken_place(name: str, most: int) -> None:
    for mutation in chosen(name, most):
        found = diagnostics(mutation)
        told = [(d.code, d.pointer, d.message) for d in found]
        if not found:
            assert mutation.category in LISTED, (mutation.category, mutation.path, mutation.before)
        else:
            assert any(near(mutation, d) for d in found), (mutation.operation, mutation.path, mutation.before, told)


def test_every_listed_mutation_does_leave_a_valid_manifest() -> None:
    for category in LISTED:
        candidates = [m for name in SMALL for m in by_category(name).get(category, [])[:40]]
        assert candidates, category
        assert any(not diagnostics(mutation) for mutation in candidates), category


def test_there_are_enough_mutations() -> None:
    counts = {name: len(chosen(name, most)) for name, most in [("example", 400), ("original-form", 200)]}
    assert sum(counts.values()) >= 300, counts
