"""Comparing parameters of recorded launches, with the evidence where they differ."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kern.recorded.parse_pass import Call
from kern.recorded.vllm.assumptions import Claim, Refuted
from kern.recorded.vllm.signatures import Value


def as_f32(value: float) -> float:
    """The float32 nearest to `value`."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


def expect(claim: Claim, call: Call, **values: Value) -> None:
    """Raises Refuted where a parameter has another value."""
    for name, value in values.items():
        if call[name] != value:
            raise Refuted(claim, f"{call.where}: {call.shown(name)}", value)


def same(claim: Claim, call: Call, name: str, other: Call, other_name: str, plus: int = 0) -> None:
    """Raises Refuted where a parameter is not another launch's, plus so many bytes."""
    if call[name] != other[other_name] + plus:
        further = f"{plus} bytes behind what" if plus else "what"
        raise Refuted(
            claim, f"{call.where}: {call.shown(name)}", f"{further} {other.where} has: {other.shown(other_name)}"
        )


def differ(claim: Claim, call: Call, name: str, other: Call, other_name: str) -> None:
    """Raises Refuted where a parameter is another launch's too."""
    if call[name] == other[other_name]:
        raise Refuted(
            claim, f"{call.where}: {call.shown(name)}, as {other.where} has `{other_name}`", "another address"
        )


def distinct(claim: Claim, calls: Iterable[Call], name: str) -> None:
    """Raises Refuted where two of the launches have the same address."""
    owners: dict[Value, str] = {}
    for call in calls:
        if call[name] in owners:
            raise Refuted(claim, f"{call.where}: {call.shown(name)}, as of {owners[call[name]]}", "another address")
        owners[call[name]] = call.where
