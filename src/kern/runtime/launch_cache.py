"""Programs at symbol values, lowered and put into the device's form once, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from kern.artifact.types import StepKey
from kern.device.base import Device, Prepared, Stream
from kern.manifest.references import program_symbols
from kern.runtime.errors import unknown
from kern.runtime.lowering import LinkedStep, lower
from kern.runtime.memory.address_table import Bases, addresses
from kern.runtime.memory.planner import MemoryPlan
from kern.runtime.symbols import Values, checked
from kern.verifier import VerifiedManifest

KEPT: Final = 64
"""Launch lists kept for reuse, the least recently used going first: symbol values may be without number."""


class PreparedCalls:
    """The launch lists of one executable."""

    def __init__(
        self,
        verified: VerifiedManifest,
        plan: MemoryPlan,
        bases: Bases,
        linked: Mapping[StepKey, LinkedStep],
        device: Device,
        stream: Stream,
    ) -> None:
        manifest = verified.manifest
        self._manifest = manifest
        self._linked = linked
        self._device = device
        self._stream = stream
        self._addresses = addresses(manifest, plan, bases)
        self._needed = program_symbols(manifest)
        self._ranges = verified.ranges.programs
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], Prepared] = OrderedDict()

    def prepared(self, program: str, values: Values) -> Prepared:
        """The launches of `program` at `values`. Raises UnknownName, a SymbolError or LaunchError."""
        if not isinstance(program, str) or program not in self._addresses:
            raise unknown("program", program, self._addresses)
        named = checked(self._needed[program], self._ranges[program], values, f"program {program!r}")
        key = (program, tuple(named.values()))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        launches = lower(self._manifest, program, named, self._addresses[program], self._linked)
        self._kept[key] = self._device.prepare(launches)
        if len(self._kept) > KEPT:
            self._stream.synchronize()  # the list that goes may still be running
            self._kept.popitem(last=False)
        return self._kept[key]
