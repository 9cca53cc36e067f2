"""The proof that a manifest holds, and the ranges that come with it."""

from __future__ import annotations

import dataclasses

import pytest

from kern.manifest.errors import KernError
from kern.manifest.reading import read
from kern.manifest.references import Usage
from kern.manifest.types import Manifest
from kern.verifier import InvalidManifest, VerifiedManifest, check, verified
from kern.verifier.example import BASE
from kern.verifier.ranges import Ranges
from support.edited_example import edited


def manifest_of(text: str) -> Manifest:
    manifest = read(text.encode()).manifest
    assert manifest is not None
    return manifest


def ranges_of(text: str) -> Ranges:
    manifest = manifest_of(text)
    return Ranges.of(manifest, Usage.of(manifest))


def test_only_verification_makes_a_verified_manifest() -> None:
    manifest = manifest_of(BASE)
    proof = verified(manifest)
    assert proof.manifest is manifest
    with pytest.raises(TypeError, match="verified"):
        VerifiedManifest(manifest, proof.ranges, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        proof.manifest = manifest  # type: ignore[misc]


def test_an_invalid_manifest_is_refused_with_every_error() -> None:
    manifest = manifest_of(edited({"/states/history/align": "3"}))
    manifest = manifest.model_copy(update={"meta": manifest.meta.model_copy(update={"version": 1})})
    with pytest.raises(InvalidManifest) as caught:
        verified(manifest)
    error = caught.value
    assert isinstance(error, KernError)
    assert error.exit_code == 1
    assert error.diagnostics == check(manifest)
    assert [d.code for d in error.diagnostics] == ["K0201", "K0302"]
    assert "K0201 at /meta/version" in str(error)
    assert "1 more" in str(error)


def test_ranges_follow_the_programs_that_use_a_thing() -> None:
    ranges = verified(manifest_of(BASE)).ranges
    assert ranges.symbols == {"rows": (1, 64), "start": (0, 4095)}
    assert ranges.programs["fill"] == ranges.symbols
    assert ranges.programs["step"] == {"rows": (1, 1), "start": (0, 4095)}
    assert ranges.kernels["summarize"]["rows"] == (1, 1)
    assert ranges.kernels["scale"]["rows"] == (1, 64)
    assert ranges.buffers["peak"]["rows"] == (1, 1)
    assert ranges.buffers["mixed"]["rows"] == (1, 64)


def test_a_union_takes_the_least_minimum_and_the_greatest_maximum() -> None:
    text = edited({
        "/symbols/rows/max": "1000",
        "/programs/fill/symbols": '{"rows": {"min": 32, "max": 64}}',
        "/programs/step/symbols": '{"rows": {"min": 2, "max": 8}}',
    })  # fmt: skip
    ranges = verified(manifest_of(text)).ranges
    assert ranges.kernels["scale"]["rows"] == (2, 64)
    assert ranges.kernels["summarize"]["rows"] == (2, 8)
    assert ranges.buffers["scaled"]["rows"] == (2, 64)


def test_what_no_program_uses_has_the_global_ranges() -> None:
    text = edited({"/buffers/spare": '{"dtype": "u8", "shape": ["rows"], "class": "workspace"}'})
    assert ranges_of(text).buffers["spare"]["rows"] == (1, 64)


def test_a_symbol_at_error_has_no_range() -> None:
    ranges = ranges_of(edited({"/programs/step/symbols": '{"rows": {"max": 65}}'}))
    assert "rows" in ranges.programs["fill"]
    assert "rows" not in ranges.programs["step"]
    assert "rows" not in ranges.kernels["scale"]
    assert "rows" not in ranges_of(edited({"/symbols/rows/max": "0"})).symbols
