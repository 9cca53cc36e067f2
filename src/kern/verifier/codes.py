"""All codes of the verifier, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kern.manifest.diagnostics import Code
from kern.verifier import arrays, dataflow, dispatches, interfaces, states, steps, symbols, unused

_RULES = (symbols, states, arrays, steps, interfaces, dispatches, dataflow, unused)

CODES: Mapping[str, Code] = MappingProxyType(
    {code.id: code for code in sorted((code for rule in _RULES for code in rule.CODES), key=lambda code: code.id)}
)
