"""What a linker and the system's loader see in an ELF file, read with struct alone: exported functions, libraries.

The loader's view is that of glibc (elf/dl-load.c, dl-map-segments.h): segments are mapped by whole pages, a later one
over an earlier one, and the part of a segment beyond its bytes in the file is zero.
"""

from __future__ import annotations

import struct

PAGE = 4096
_ZEROS = bytes(PAGE)
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _AUXILIARY, _FILTER = 1, 5, 0x7FFFFFFD, 0x7FFFFFFF
_SYMTAB_SECTION, _DYNSYM_SECTION = 2, 11


class BadView(Exception):
    """A table that cannot be followed."""


def exported(data: bytes, *, dynamic: bool) -> set[str]:
    """The global and weak functions that the file defines, of its table for the loader or of that for linkers."""
    names: set[str] = set()
    sections = _table(data, 40, 60, 64, "<IIQQQQIIQQ")
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != (_DYNSYM_SECTION if dynamic else _SYMTAB_SECTION):
            continue
        if link >= len(sections):
            raise BadView("a symbol table without strings")
        start, length = sections[link][4:6]
        strings = data[start : start + length]
        for at in range(offset, min(offset + size, len(data)) - 23, 24):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == 2 and info >> 4 in (1, 2) and section:
                names.add(_string(strings, name))
    return names


def needed(data: bytes) -> set[str]:
    """What the loader would load in addition to the file; nothing if it refuses the file itself."""
    segments = _table(data, 32, 56, 56, "<IIQQQQQQ")
    loads = [segment for segment in segments if segment[0] == _LOAD]
    dynamic = [segment for segment in segments if segment[0] == _DYNAMIC]
    pages: dict[int, bytes] = {}
    for _, flags, offset, address, _, in_file, in_memory, align in loads:
        if align % PAGE or (address - offset) % max(align, 1) or in_memory > 2**30 or in_file > in_memory:
            return set()
        start, end = address // PAGE, -(-(address + in_file) // PAGE)
        for page in range(start, end):
            at = (offset // PAGE + page - start) * PAGE
            pages[page] = data[at : at + PAGE].ljust(PAGE, b"\0")
        if in_memory > in_file and flags & 2 and (address + in_file) // PAGE in pages:
            page, kept = divmod(address + in_file, PAGE)
            pages[page] = pages[page][:kept].ljust(PAGE, b"\0")
        for page in range(end, -(-(address + in_memory) // PAGE)):
            pages[page] = _ZEROS
    if not dynamic or not loads:
        return set()
    entries = list(_entries(pages, dynamic[-1][3]))
    strings = dict(entries).get(_STRTAB)
    if strings is None:
        return set()
    asked = (_NEEDED, _AUXILIARY, _FILTER)
    return {_text(pages, strings + value) for tag, value in entries if tag in asked}


def _entries(pages: dict[int, bytes], address: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < 10_000:
        data = _memory(pages, address + 16 * len(found), 16)
        if len(data) < 16:
            return []  # the loader would crash, and load nothing
        tag, value = struct.unpack("<qQ", data)
        if tag == 0:
            return found
        found.append((tag, value))
    return found


def _memory(pages: dict[int, bytes], address: int, size: int) -> bytes:
    page, at = divmod(address, PAGE)
    data = pages.get(page, b"")[at : at + size]
    if page not in pages or len(data) == size:
        return data
    return data + _memory(pages, (page + 1) * PAGE, size - len(data))


def _text(pages: dict[int, bytes], address: int) -> str:
    return _memory(pages, address, 256).partition(b"\0")[0].decode("latin-1")


def _table(data: bytes, offset_at: int, count_at: int, size: int, form: str) -> list[tuple[int, ...]]:
    offset = int.from_bytes(data[offset_at : offset_at + 8], "little")
    count = int.from_bytes(data[count_at : count_at + 2], "little")
    if offset + count * size > len(data):
        raise BadView("a table reaches past the end")
    return [struct.unpack_from(form, data, offset + row * size) for row in range(count)]


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if end < 0:
        raise BadView("a name does not end")
    return table[offset:end].decode("utf-8", "backslashreplace")
