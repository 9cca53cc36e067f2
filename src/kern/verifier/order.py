"""The order of places in a manifest: sections, then entries as they stand, then fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kern.manifest.diagnostics import Diagnostic
from kern.manifest.types import Manifest

_FIELDS = (
    "symbols", "params", "impl", "scratch", "steps", "dispatches", "label", "kernel", "symbol", "block", "grid",
    "shared_mem", "cubin", "sha256", "pdl", "cluster", "cooperative", "args", "min", "max", "dtype", "shape", "class",
)  # fmt: skip
_RANK = {field: rank for rank, field in enumerate(_FIELDS)}


def in_order(manifest: Manifest, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """`diagnostics` by place, those of one place as they came; equal ones once."""
    sections = list(type(manifest).model_fields)
    entries: dict[str, Mapping[str, int]] = {}
    for section in sections[1:]:
        entries[section] = {name: rank for rank, name in enumerate(getattr(manifest, section))}

    def place(diagnostic: Diagnostic) -> tuple[int, ...]:
        section, *rest = diagnostic.path
        ranks = [sections.index(str(section))]
        if rest:
            ranks.append(entries.get(str(section), {}).get(str(rest[0]), -1))
        return (*ranks, *(t if isinstance(t, int) else _RANK.get(t, -1) for t in rest[1:]))

    return tuple(sorted(dict.fromkeys(diagnostics), key=place))
