"""Fuzz target: manifests. What is accepted reads the same after writing, and fits the published schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from jsonschema import Draft202012Validator

from fuzz.byte_changes import change_bytes
from fuzz.json_changes import change_json, json_text
from fuzz.target import ACCEPTED, Contradiction, Target, require
from kern import verify
from kern.checkpoints.config import preset
from kern.cli.explain import all_codes
from kern.manifest.reading import read
from kern.manifest.schema import json_schema
from kern.manifest.writing import write
from kern.verifier import verified
from kern.verifier.example import BASE
from support.edited_example import edited
from support.valid_manifests import ORIGINAL_FORM, generated

SCHEMA_BYTES = 30_000
"""The schema is compared on manifests up to this size; its validator is slow on larger ones."""
FRAGMENTS: tuple[Any, ...] = (
    *({"sym": "rows"}, {"mul": [{"sym": "rows"}, 2**31]}, {"add": ["rows", "start"]}, {"ceil_div": [7, 0]}),
    *({"buf": "mixed"}, {"buf": "mixed", "offset": 8}, {"state": "history"}, {"expr": {"sym": "start"}}),
    *({"f32": 1e39}, {"i32": -(2**31)}, {"u8": 256}, {"arg": 0}, {"arg": -1}, {"scratch": "partial", "offset": 4}),
    *("in ptr", "out buffer<bf16> align 4096", "inout buffer<f32>", "i64", "extern:cublaslt_bf16_tn", "rows"),
    *({"cluster": [1, 1, 1]}, {"cooperative": True}, {"pdl": True}, {"shared_mem": 16}, {"keep": True}, {"label": "x"}),
    *({"offset": 8}, {"align": 512}, {"granule": 2}, {"bytes": 64}, {"cubin": "a.so"}, {"sha256": "0" * 64}, {"": 0}),
    *({"dtype": "f32", "shape": ["rows", 64], "class": "carry"}, {"min": 0}, {"max": 1}, [1, 1, 1], [2**31, 1, 1]),
)


@cache
def seeds() -> tuple[bytes, ...]:
    """The example, the same with optional fields, the original form, and a transformer of two layers."""
    options = {
        "/kernels/scale/impl/steps/0/cluster": "[1, 1, 1]",
        "/kernels/scale/impl/steps/0/pdl": "true",
        "/kernels/scale/impl/steps/0/shared_mem": "16",
        "/kernels/record/impl/steps/0/cooperative": "true",
        "/programs/fill/dispatches/2/label": '"recorded"',
        "/states/history/align": "512",
    }
    texts = BASE, edited(options), ORIGINAL_FORM.read_text(), generated(preset("llama", "tiny"), "tiny")
    return tuple(text.encode() for text in texts)


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change its JSON; its bytes where it is not JSON."""
    try:
        document = json.loads(data)
        other = json.loads(random.choice(others))
    except (ValueError, RecursionError):
        return change_bytes(random, data, others)
    return json_text(random, change_json(random, document, [other], FRAGMENTS))


def run(data: bytes, folder: Path) -> str:
    """Verify a file."""
    path = folder / "manifest.json"
    path.write_bytes(data)
    report = verify(path)
    for found in report.diagnostics:
        require(found.diagnostic.code in all_codes(), f"unknown code: {found.diagnostic.code}")
        require(bool(found.diagnostic.message and found.diagnostic.help), f"an empty message: {found}")
        lines = report.source.text.count("\n") + 1
        require(1 <= found.line <= lines and found.column >= 1, f"a location outside the file: {found}")
    if not report.ok:
        return f"refused: {report.diagnostics[0].diagnostic.code}"
    document = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_number)
    manifest = read(data).manifest
    assert manifest is not None
    require(read(write(manifest).encode()).manifest == manifest, f"writing changes it: {write(manifest)[:2000]}")
    require(verified(manifest).manifest is manifest, "verifying twice differs")
    require(verify(path) == report, "verifying twice differs")
    if len(data) < SCHEMA_BYTES:
        error = next(_schema().iter_errors(document), None)
        require(error is None, f"the schema refuses it: {error}")
    return ACCEPTED


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    require(len(members) == len(pairs), f"a key twice: {[name for name, _ in pairs]}")
    return members


def _no_number(text: str) -> NoReturn:
    raise Contradiction(f"not a JSON number: {text}")


@cache
def _schema() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


TARGET = Target("manifest", seeds, change, run, short=80)
