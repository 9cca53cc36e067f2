"""Programs at symbol values, lowered and prepared for the device once, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from kern.artifact.types import StepKey
from kern.device.base import Device, Prepared, Stream
from kern.manifest.references import program_symbols
from kern.runtime.errors import unknown
from kern.runtime.lowering import LinkedStep, Template, lower, templates
from kern.runtime.memory.address_table import ProgramAddresses
from kern.runtime.symbols import Values, checked
from kern.verifier import VerifiedManifest

MAX_ENTRIES: Final = 512
"""Launch lists kept for reuse, the least recently used removed first, since nothing bounds how many values are used.

A caller that pads its calls to a closed set of sizes stays below: 13 numbers of sequences and 9 of tokens, for two
programs that take both and six that take one, make about 300 lists. A list of 221 to 438 launches takes 0.3 to 0.4 MB
and 2 to 3 ms (benchmarks/launch_lists.py), so that 512 such lists take less than 0.2 GB.
"""


class LaunchCache:
    """The launch lists of one executable."""

    def __init__(
        self,
        verified: VerifiedManifest,
        addresses: Mapping[str, ProgramAddresses],
        linked: Mapping[StepKey, LinkedStep],
        device: Device,
        stream: Stream,
    ) -> None:
        self._manifest = verified.manifest
        self._ranges = verified.ranges.programs
        self._needed = program_symbols(verified.manifest)
        self._addresses = addresses
        self._linked = linked
        self._device = device
        self._stream = stream
        self._templates: dict[str, tuple[Template, ...]] = {}
        self._kept: OrderedDict[tuple[str, tuple[int, ...], bool], tuple[Prepared, ...]] = OrderedDict()

    def checked(self, program: str, values: Values) -> dict[str, int]:
        """The values of the symbols that `program` uses. Raises UnknownName or a SymbolError."""
        if not isinstance(program, str) or program not in self._addresses:
            raise unknown("program", program, self._addresses)
        return checked(self._needed[program], self._ranges[program], values, f"program {program!r}")

    def prepared(self, program: str, values: Values) -> Prepared:
        """The launches of `program` at `values`. Raises UnknownName, a SymbolError or LaunchError."""
        return self._lists(program, values, single=False)[0]

    def single_launches(self, program: str, values: Values) -> tuple[Prepared, ...]:
        """As `prepared`, with one list per launch."""
        return self._lists(program, values, single=True)

    def _lists(self, program: str, values: Values, *, single: bool) -> tuple[Prepared, ...]:
        named = self.checked(program, values)
        key = (program, tuple(named.values()), single)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        launches = lower(self._templates_of(program), named)
        lists = [(launch,) for launch in launches] if single else [launches]
        self._kept[key] = tuple(self._device.prepare(each) for each in lists)
        if len(self._kept) > MAX_ENTRIES:
            self._stream.synchronize()  # the list that is removed may still be running
            self._kept.popitem(last=False)
        return self._kept[key]

    def _templates_of(self, program: str) -> tuple[Template, ...]:
        if program not in self._templates:
            made = templates(self._manifest, program, self._addresses[program], self._linked)
            self._templates[program] = made
        return self._templates[program]
