"""What the rules share: the manifest with its usage, ranges, sizes and interfaces, worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kern.manifest.arrays import array_bytes
from kern.manifest.references import Usage
from kern.manifest.types import Buffer, Manifest, Scratch
from kern.verifier.expressions import interval
from kern.verifier.operators import EXTERNS
from kern.verifier.ranges import Ranges, SymbolRanges
from kern.verifier.suggestions import Effort, Names
from kern.verifier.wiring import Interface


@dataclass(frozen=True, slots=True)
class Scope:
    """A manifest and what follows from it.

    Sizes are the bytes reserved at the bounds, None where a fault elsewhere leaves them unknown;
    `scratch_bytes` goes by kernel, then scratch. `names` goes by the kind of thing, `scratch_names` by kernel.
    """

    manifest: Manifest
    usage: Usage
    ranges: Ranges
    buffer_bytes: Mapping[str, int | None]
    scratch_bytes: Mapping[str, Mapping[str, int | None]]
    interfaces: Mapping[str, Interface]
    names: Mapping[str, Names]
    scratch_names: Mapping[str, Names]

    @classmethod
    def of(cls, manifest: Manifest) -> Scope:
        """Work it out."""
        usage = Usage.of(manifest)
        ranges, effort = Ranges.of(manifest, usage), Effort()
        return cls(
            manifest,
            usage,
            ranges,
            {name: most_bytes(b, ranges.buffers[name]) for name, b in manifest.buffers.items()},
            {
                name: {key: most_bytes(s, ranges.kernels[name]) for key, s in kernel.impl.scratch.items()}
                for name, kernel in manifest.kernels.items()
            },
            {name: Interface.of(kernel) for name, kernel in manifest.kernels.items()},
            {
                "symbol": Names("symbol", manifest.symbols, effort),
                "state": Names("state", manifest.states, effort),
                "buffer": Names("buffer", manifest.buffers, effort),
                "kernel": Names("kernel", manifest.kernels, effort),
                "extern": Names("extern", EXTERNS, effort),
            },
            {name: Names("scratch", kernel.impl.scratch, effort) for name, kernel in manifest.kernels.items()},
        )


def most_bytes(array: Buffer | Scratch, ranges: SymbolRanges) -> int | None:
    """Bytes of a dense array at the upper bounds, None where its shape has a fault."""
    if isinstance(array, Buffer) and array.class_ == "weight":
        ranges = {}  # a symbol here is a fault, and no size follows from it
    bounds = [interval(dimension, ranges) for dimension in array.shape]
    highs = [bound[1] for bound in bounds if bound is not None and bound[0] > 0]
    return array_bytes(array.dtype, highs) if len(highs) == len(array.shape) > 0 else None
