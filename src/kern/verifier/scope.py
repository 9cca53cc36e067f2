"""What the rules share: the manifest with its references, ranges, sizes and accesses, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kern.manifest.arrays import array_bytes
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.effects import Access, dispatch_accesses, step_accesses
from kern.manifest.expressions import Expr, Sym
from kern.manifest.operators import OPERATORS
from kern.manifest.references import Usage
from kern.manifest.types import Buffer, Kernel, Manifest, Scratch
from kern.verifier.expressions import errors, interval
from kern.verifier.ranges import Ranges, SymbolRanges
from kern.verifier.suggestions import Effort, Names


@dataclass(frozen=True, slots=True)
class Scope:
    """A manifest and what follows from it.

    Sizes are the bytes reserved at the bounds, None where an error elsewhere leaves them unknown; `scratch_bytes`
    goes by kernel, then scratch. `alignments` has, for each kernel, the bytes that each interface parameter must be
    aligned to: its own alignment, or that of a launch it is forwarded to if that is more. `accesses` has, for each
    program, the accesses of its dispatches in order. `names` goes by the kind of thing, `scratch_names` by kernel.
    """

    manifest: Manifest
    usage: Usage
    ranges: Ranges
    buffer_bytes: Mapping[str, int | None]
    scratch_bytes: Mapping[str, Mapping[str, int | None]]
    alignments: Mapping[str, Sequence[int]]
    accesses: Mapping[str, Sequence[Sequence[Access]]]
    names: Mapping[str, Names]
    scratch_names: Mapping[str, Names]
    _bytes_in: dict[tuple[str, str], int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> Scope:
        """Compute it."""
        usage = Usage.of(manifest)
        ranges, effort, kernels = Ranges.of(manifest, usage), Effort(), manifest.kernels
        return cls(
            manifest,
            usage,
            ranges,
            {name: _most_bytes(b, ranges.buffers[name]) for name, b in manifest.buffers.items()},
            {
                name: {key: _most_bytes(s, ranges.kernels[name]) for key, s in kernel.impl.scratch.items()}
                for name, kernel in kernels.items()
            },
            {name: _alignments(kernel) for name, kernel in kernels.items()},
            {
                name: [
                    dispatch_accesses(kernels[dispatch.kernel], dispatch) if dispatch.kernel in kernels else ()
                    for dispatch in program.dispatches
                ]
                for name, program in manifest.programs.items()
            },
            {
                "symbol": Names("symbol", manifest.symbols, effort),
                "state": Names("state", manifest.states, effort),
                "buffer": Names("buffer", manifest.buffers, effort),
                "kernel": Names("kernel", kernels, effort),
                "operator": Names("operator", OPERATORS, effort),
            },
            {name: Names("scratch", kernel.impl.scratch, effort) for name, kernel in kernels.items()},
        )

    def bytes_in(self, program: str, buffer: str) -> int | None:
        """The bytes of a buffer at the upper bounds that hold in a program."""
        key = program, buffer
        if key not in self._bytes_in:
            self._bytes_in[key] = _most_bytes(self.manifest.buffers[buffer], self.ranges.programs[program])
        return self._bytes_in[key]

    def expression_errors(self, expr: Expr, path: Path, unknown: Code, factor: Code) -> Sequence[Diagnostic]:
        """The errors in an expression by itself, under the codes of an unknown symbol and of a factor below 1."""
        if type(expr) is Sym and expr.sym in self.manifest.symbols:
            return ()
        return [
            unknown.at(location, f"unknown symbol `{what}`", self.names["symbol"].hint(what))
            if isinstance(what, str)
            else factor.at(location, f"{what} as a factor or divisor", "write 1 or more")
            for location, what in errors(expr, path, self.manifest.symbols)
        ]


def _alignments(kernel: Kernel) -> Sequence[int]:
    alignments = [param.alignment for param in kernel.params]
    for step in kernel.impl.steps:
        for access in step_accesses(step, None):
            if access.interface is not None and 0 <= access.interface < len(alignments):
                alignments[access.interface] = max(alignments[access.interface], access.param.alignment)
    return alignments


def _most_bytes(array: Buffer | Scratch, ranges: SymbolRanges) -> int | None:
    """Bytes of a dense array at the upper bounds, None where its shape has an error."""
    if isinstance(array, Buffer) and array.class_ == "weight":
        ranges = {}  # a symbol here is an error, and no size follows from it
    bounds = [interval(dimension, ranges) for dimension in array.shape]
    highs = [bound[1] for bound in bounds if bound is not None and bound[0] > 0]
    return array_bytes(array.dtype, highs) if len(highs) == len(array.shape) > 0 else None
