"""A bounded view of a 64-bit little-endian ELF file: nothing in it is trusted before it is checked.

pyelftools gives the header structures. Its section objects are not used: they follow links and decompress, both of
which a malicious file can make endless.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile

from kern.artifact.errors import BadModule

MAX_SECTIONS: Final = 32768
MAX_SEGMENTS: Final = 256
MAX_SYMBOLS: Final = 2**20
MAX_NAME_BYTES: Final = 2**16
MAX_NAMES: Final = 4
"""Limit on all names of a file together, as a multiple of its length: string tables may be shared, so many long names
fit in a short file. Names that compilers write take up to a quarter of it."""

_HEADER_BYTES, _SECTION_BYTES, _SEGMENT_BYTES, _SYMBOL = 64, 64, 56, struct.Struct("<IBBHQQ")
_COMPRESSED: Final = 0x800
_FUNCTION, _GLOBAL, _WEAK = 2, 1, 2


@dataclass(frozen=True, slots=True)
class Section:
    """A section header; `type` is pyelftools' name, or the number for a type without a name."""

    index: int
    name: str
    type: str | int
    flags: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A program header: `size` bytes at `offset` of the file, at `address` when loaded, `memory` bytes there."""

    type: str | int
    flags: int
    offset: int
    address: int
    size: int
    memory: int
    align: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function that other files may refer to. `section` is 0 for one defined elsewhere."""

    index: int
    name: str
    other: int
    section: int


class Elf:
    """An ELF file whose tables are inside it. Raises BadModule otherwise."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        self._names_left = MAX_NAMES * len(image)
        if len(image) < _HEADER_BYTES or not image.startswith(b"\x7fELF"):
            raise BadModule("it is not an ELF file")
        if image[4:7] != b"\x02\x01\x01":
            raise BadModule("it is not a 64-bit little-endian ELF file, version 1")
        try:
            self._file = ELFFile(io.BytesIO(image))
        except ELFError as error:
            raise BadModule(f"its ELF header does not parse: {error}") from None
        header = self._file.header
        self.machine: str | int = header["e_machine"]
        self.type: str | int = header["e_type"]
        self.flags: int = header["e_flags"]
        self.abi_version: int = image[8]
        self.sections = self._read_sections(header)
        self.segments = self._read_segments(header)
        self._by_name: dict[str, list[Section]] = {}
        for section in self.sections:
            self._by_name.setdefault(section.name, []).append(section)

    def section(self, name: str) -> Section | None:
        """The section of that name, None if there is none. Raises BadModule if there are several."""
        found = self._by_name.get(name, ())
        if len(found) > 1:
            raise BadModule(f"it has {len(found)} sections named {name!r}")
        return found[0] if found else None

    def data(self, section: Section) -> bytes:
        """A section's bytes in the file; empty if it has no bytes there. Raises BadModule for a compressed one."""
        if section.flags & _COMPRESSED:
            raise BadModule(f"its section {section.name!r} is compressed")
        return b"" if section.type == "SHT_NOBITS" else self.image[section.offset : section.offset + section.size]

    def string(self, table: bytes, offset: int) -> str:
        """The zero-terminated name at `offset` of a string table."""
        end = table.find(b"\0", offset, offset + MAX_NAME_BYTES + 1)
        if offset >= len(table) or end < 0:
            raise BadModule("it has a name that is outside its string table or does not end")
        self._names_left -= end - offset
        if self._names_left < 0:
            raise BadModule(f"its names take more than {MAX_NAMES} times the size of the file")
        name = table[offset:end].decode("utf-8", "backslashreplace")
        if not name.isprintable():
            raise BadModule(f"it has a name that cannot be printed: {name[:80]!r}")
        return name

    def functions(self, kind: str) -> Iterator[Symbol]:
        """The global and weak functions of the symbol table of type `kind`, defined or not; none without a table.

        The entries are unpacked here: pyelftools drops the bits of st_other in which CUDA marks entry points.
        """
        for index, strings, (name, info, other, home, _, _) in self._symbols(kind):
            if info & 0xF == _FUNCTION and info >> 4 in (_GLOBAL, _WEAK):
                yield Symbol(index, self.string(strings, name), other, home)

    def imported(self) -> Iterator[str]:
        """The names that the dynamic loader looks up elsewhere, of functions and of everything else."""
        for index, strings, (name, _, _, home, _, _) in self._symbols("SHT_DYNSYM"):
            if index and not home:
                yield self.string(strings, name)

    def _symbols(self, kind: str) -> Iterator[tuple[int, bytes, tuple[int, ...]]]:
        """The index, the string table and the fields of each entry of the symbol table of type `kind`."""
        tables = [section for section in self.sections if section.type == kind]
        if len(tables) > 1:
            raise BadModule(f"it has {len(tables)} symbol tables of one kind")
        for section in tables:
            if section.link >= len(self.sections):
                raise BadModule(f"its symbol table {section.name!r} has no string table")
            if section.size % _SYMBOL.size or section.size > MAX_SYMBOLS * _SYMBOL.size:
                raise BadModule(f"its symbol table {section.name!r} has an impossible size")
            strings = self.data(self.sections[section.link])
            for index, entry in enumerate(_SYMBOL.iter_unpack(self.data(section))):
                yield index, strings, entry

    def parse(self, structure: str, offset: int) -> Any:
        """One of pyelftools' structures, read at `offset` of the file."""
        try:
            return struct_parse(getattr(self._file.structs, structure), self._file.stream, offset)
        except ELFError as error:
            raise BadModule(f"it is truncated or damaged at byte {offset:,}: {error}") from None

    def _table(self, what: str, offset: int, count: int, entry: int, size: int, limit: int) -> range:
        """The offsets of the entries of a header table."""
        if count > limit:
            raise BadModule(f"it claims {count:,} {what}; the limit is {limit:,}")
        if count and entry != size:
            raise BadModule(f"its {what} have headers of {entry} bytes, not {size}")
        if offset + count * size > len(self.image):
            raise BadModule(f"it is truncated: the headers of its {what} extend past its end")
        return range(offset, offset + count * size, size)

    def _read_sections(self, header: Any) -> tuple[Section, ...]:
        count, names = header["e_shnum"], header["e_shstrndx"]
        offsets = self._table("sections", header["e_shoff"], count, header["e_shentsize"], _SECTION_BYTES, MAX_SECTIONS)
        headers = [self.parse("Elf_Shdr", offset) for offset in offsets]
        if names >= count:
            raise BadModule("it has no table of section names")
        for index, found in enumerate(headers):
            inside = found["sh_offset"] + found["sh_size"] <= len(self.image)
            if not inside and found["sh_type"] not in ("SHT_NOBITS", "SHT_NULL"):
                raise BadModule(f"it is truncated: section {index} extends past its end")
        table = self.image[headers[names]["sh_offset"] :][: headers[names]["sh_size"]]
        return tuple(
            Section(
                index,
                self.string(table, found["sh_name"]),
                found["sh_type"],
                found["sh_flags"],
                found["sh_offset"],
                found["sh_size"],
                found["sh_link"],
                found["sh_info"],
            )
            for index, found in enumerate(headers)
        )

    def _read_segments(self, header: Any) -> tuple[Segment, ...]:
        offsets = self._table(
            "segments",
            header["e_phoff"],
            header["e_phnum"],
            header["e_phentsize"],
            _SEGMENT_BYTES,
            MAX_SEGMENTS,
        )
        headers = [self.parse("Elf_Phdr", offset) for offset in offsets]
        for index, found in enumerate(headers):
            if found["p_offset"] + found["p_filesz"] > len(self.image):
                raise BadModule(f"it is truncated: segment {index} extends past its end")
        return tuple(
            Segment(
                found["p_type"],
                found["p_flags"],
                found["p_offset"],
                found["p_vaddr"],
                found["p_filesz"],
                found["p_memsz"],
                found["p_align"],
            )
            for found in headers
        )
