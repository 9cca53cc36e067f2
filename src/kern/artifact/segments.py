"""The segments of a shared object as the dynamic loader maps them: none may hide a part of another.

The loader maps whole pages, segment by segment, and reads the dynamic segment. The bytes read here for an address are
those that it will see there, as long as no two segments share a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kern.artifact.elf import Elf, Segment
from kern.artifact.errors import BadModule

MAX_DYNAMIC_ENTRIES: Final = 4096

_PAGES: Final[Mapping[str | int, tuple[int, ...]]] = {"EM_X86_64": (4096,), "EM_AARCH64": (65536, 16384, 4096)}
"""The page sizes of each machine, the largest first."""
_PLAIN_LINK: Final = "link it as a plain shared object, with `cc -shared`"
_EXECUTABLE: Final = 1


def check_segments(elf: Elf) -> None:
    """Refuse segments that share a page, or that are not where their addresses say. Raises BadModule."""
    loaded = [segment for segment in elf.segments if segment.type == "PT_LOAD"]
    page = next((size for size in _PAGES[elf.machine] if all(one.align % size == 0 for one in loaded)), None)
    if page is None:
        raise BadModule("its segments are not aligned to pages", _PLAIN_LINK)
    end = 0
    for index, segment in enumerate(loaded):
        if segment.size > segment.memory or (segment.address - segment.offset) % page:
            raise BadModule(f"its loaded segment {index} is not where its address says", _PLAIN_LINK)
        if segment.address // page * page < end:
            raise BadModule(f"its loaded segment {index} shares a page with the one before it", _PLAIN_LINK)
        end = -(-(segment.address + segment.memory) // page) * page
    if any(segment.type == "PT_INTERP" for segment in elf.segments):
        raise BadModule("it names a program interpreter", _PLAIN_LINK)
    stacks = [segment for segment in elf.segments if segment.type == "PT_GNU_STACK"]
    if len(stacks) != 1 or stacks[0].flags & _EXECUTABLE:
        raise BadModule("it asks for an executable stack", "link it with -z noexecstack")


def dynamic(elf: Elf) -> Iterator[tuple[str | int, int]]:
    """The entries of the dynamic segment up to its end mark. Raises BadModule."""
    segments = [segment for segment in elf.segments if segment.type == "PT_DYNAMIC"]
    if len(segments) != 1:
        raise BadModule(f"it has {len(segments)} dynamic segments instead of one")
    start, size = in_file(elf, segments[0].address, segments[0].size), segments[0].size
    for offset in range(start, start + size - 15, 16)[:MAX_DYNAMIC_ENTRIES]:
        entry = elf.parse("Elf_Dyn", offset)
        if entry["d_tag"] == "DT_NULL":
            return
        yield entry["d_tag"], entry["d_val"]
    raise BadModule("its dynamic segment does not end")


def dynamic_strings(elf: Elf, entries: Mapping[str | int, int]) -> bytes:
    """The string table of the dynamic segment, which the symbol section must also use. Raises BadModule."""
    address, size = entries.get("DT_STRTAB"), entries.get("DT_STRSZ")
    if address is None or size is None:
        raise BadModule("its dynamic segment has no string table")
    start = in_file(elf, address, size)
    for section in elf.sections:
        if section.type == "SHT_DYNSYM":
            symbols = in_file(elf, entries.get("DT_SYMTAB", -1), section.size)
            strings = elf.sections[section.link].offset if section.link < len(elf.sections) else -1
            if (symbols, start) != (section.offset, strings):
                raise BadModule(f"its section {section.name!r} is not the symbol table that the loader reads")
    return elf.image[start : start + size]


def in_file(elf: Elf, address: int, size: int) -> int:
    """The offset in the file of what the loader will see at `address`. Raises BadModule."""
    for segment in elf.segments:
        if segment.type == "PT_LOAD" and _holds(segment, address, size):
            return segment.offset + address - segment.address
    raise BadModule("its dynamic segment, or a table in it, is outside the file")


def _holds(segment: Segment, address: int, size: int) -> bool:
    return segment.address <= address and address + size <= segment.address + segment.size
