"""Fuzz target: kernel files. What is accepted exports its kernels, and has the loader load allowed libraries alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from fuzz.byte_changes import LIMITS, change_bytes
from fuzz.elf_oracle import PAGE, BadView, exported, needed
from fuzz.target import ACCEPTED, Target, require
from kern.artifact.host_module import ALLOWED_LIBRARIES
from kern.artifact.modules import describe
from support.elf import HEADER, SECTION, SECTION_BYTES, SEGMENT, SEGMENT_BYTES, get, put
from support.host_modules import shared_object
from support.nvrtc import cubin

CUBIN = Path(__file__).parents[1] / "samples" / "abi7.cubin"
C = """#include "kern_host.h"
KERN_KERNEL(first, "ptr,i32") { (void)launch; (void)params; }
KERN_KERNEL(second, "ptr,ptr,i64,f32,u8") { (void)launch; (void)params; }
"""
CUDA = r"""
extern "C" __global__ void __launch_bounds__(64) first(float *out, int n, double d) { out[n] = d; }
extern "C" __global__ void second(int *out) { __shared__ int s[8]; s[threadIdx.x] = 1; __syncthreads(); *out = s[2]; }
"""
MORE_SEGMENT = {**SEGMENT, "p_flags": (4, "I"), "p_paddr": (24, "Q"), "p_memsz": (40, "Q"), "p_align": (48, "Q")}
INFO = 0x70000000
"""The type of .nv.info sections."""
ENTRY = struct.Struct("<QQ")
TAGS = (0, 1, 3, 4, 5, 6, 10, 14, 15, 29, 0x6FFFFFFB, 0x7FFFFFFD, 0x7FFFFFFF, 0x6FFFFEFC, 0x6FFFFEFB)
"""Of the dynamic segment: NULL, NEEDED, tables, SONAME, search paths, and what brings in other code."""
TEXTS = (b"x86-64-v3", b"x86-64-v9", b"aarch64", b"first(ptr)", b"second()", b"first(ptr,i32,i32)", b"/tmp/evil.so")


@cache
def seeds() -> tuple[bytes, ...]:
    """A host module with its symbols, one without, and cubins of both versions of the ABI."""
    return shared_object(C), shared_object(C, "-s", "-Wl,--build-id=none"), CUBIN.read_bytes(), cubin(CUDA, "sm_90a")


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change a header's field, a table's entry, a string, or bytes anywhere."""
    kind = random.randrange(10)
    try:
        if kind < 1:
            return _field(random, data, 0, HEADER)
        if kind < 3:
            return _field(random, data, _row(random, data, "e_shoff", "e_shnum", SECTION_BYTES), SECTION)
        if kind < 5:
            return _field(random, data, _row(random, data, "e_phoff", "e_phnum", SEGMENT_BYTES), MORE_SEGMENT)
        if kind < 6:
            return _rows_exchanged(random, data)
        if kind < 7:
            return _shadowed(random, data) if random.random() < 0.3 else _dynamic(random, data)
        if kind < 8:
            return _inside(random, data, others)
        if kind < 9:
            return _attribute(random, data)
    except (struct.error, ValueError, IndexError, OverflowError):
        pass  # a header that was damaged before
    return change_bytes(random, data, others)


def run(data: bytes, folder: Path) -> str:
    """Describe a kernel file."""
    found = describe("fuzz", data, "")
    require(found.kernels == describe("fuzz", data, "").kernels, "describing twice differs")
    for kernel in found.kernels.values():
        require(len(kernel.layout.offsets) == len(kernel.layout.sizes), f"offsets without sizes: {kernel}")
        require(kernel.static_shared_mem >= 0, f"negative shared memory: {kernel}")
    try:
        names = exported(data, dynamic=found.kind == "host")
    except BadView:
        names = set()
    require(found.kernels.keys() <= names, f"kernels that are not exported: {sorted(found.kernels)}, {sorted(names)}")
    if found.kind == "host":
        asked = needed(data)
        require(asked <= ALLOWED_LIBRARIES, f"the loader would load other files: {sorted(asked)}")
    return ACCEPTED


def _field(random: Random, data: bytes, base: int, fields: dict[str, tuple[int, str]]) -> bytes:
    name = random.choice(tuple(fields))
    found = get(data, base, fields, name)
    bits = 8 * struct.calcsize(fields[name][1])
    near = found + random.choice((-4096, -16, -8, -1, 1, 2, 8, 16, 4096, len(data)))
    return put(data, base, fields, **{name: random.choice((random.choice(LIMITS), near, near, found * 2)) % 2**bits})


def _row(random: Random, data: bytes, table: str, count: str, size: int) -> int:
    """Where a random header of a table stands."""
    base = get(data, 0, HEADER, table) + size * random.randrange(min(get(data, 0, HEADER, count), 100))
    if base + size > len(data):
        raise ValueError("the table lies outside the file")
    return base


def _rows_exchanged(random: Random, data: bytes) -> bytes:
    """A section or program header in the place of another."""
    table = random.choice((("e_shoff", "e_shnum", SECTION_BYTES), ("e_phoff", "e_phnum", SEGMENT_BYTES)))
    one, other = _row(random, data, *table), _row(random, data, *table)
    changed, size = bytearray(data), table[2]
    changed[one : one + size] = data[other : other + size]
    if random.random() < 0.5:
        changed[other : other + size] = data[one : one + size]
    return bytes(changed)


def _ranges(data: bytes) -> list[tuple[int, int]]:
    """The offsets of the sections in the file."""
    table, count = get(data, 0, HEADER, "e_shoff"), min(get(data, 0, HEADER, "e_shnum"), 100)
    rows = [table + SECTION_BYTES * row for row in range(count)]
    found = [(get(data, row, SECTION, "sh_offset"), get(data, row, SECTION, "sh_size")) for row in rows]
    return [(start, min(size, len(data) - start)) for start, size in found if 0 < start < len(data) and size]


def _inside(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Bytes of a section changed, its length kept; or a text that means something put over it."""
    start, size = random.choice(_ranges(data))
    part = data[start : start + size]
    if random.random() < 0.3:
        text = random.choice(TEXTS) + b"\0"
        at = random.choice((0, random.randrange(size)))
        changed = part[:at] + text + part[at + len(text) :]
    else:
        changed = change_bytes(random, part, [part])
    return data[:start] + changed[:size].ljust(size, b"\0") + data[start + size :]


def _attribute(random: Random, data: bytes) -> bytes:
    """A cubin's attribute: its format, code, length or first word; or the length of the section that holds them."""
    table, count = get(data, 0, HEADER, "e_shoff"), min(get(data, 0, HEADER, "e_shnum"), 100)
    rows = range(table, table + SECTION_BYTES * count, SECTION_BYTES)
    row = random.choice([row for row in rows if get(data, row, SECTION, "sh_type") == INFO])
    start, size = get(data, row, SECTION, "sh_offset"), get(data, row, SECTION, "sh_size")
    if random.random() < 0.3:
        return put(data, row, SECTION, sh_size=max(0, size + random.choice((-4, -3, -2, -1, 1, 2, 3, 4, -size, 4096))))
    places = []
    at = start
    while at + 4 <= min(start + size, len(data)) and len(places) < 1000:
        places.append(at)
        at += 4 + (int.from_bytes(data[at + 2 : at + 4], "little") if data[at] == 4 else 0)
    at = random.choice(places) + random.choice((0, 1, 2, 4, 8, 12))
    changed = random.choice(
        (data[at : at + 1], b"\0", b"\1", b"\4", b"\x05", b"\x10", b"\x17", b"\x19", b"\x2f", b"\xff")
    )
    return data[:at] + changed + data[at + 1 :]


def _segments(data: bytes, kind: int) -> list[int]:
    """Where the program headers of one type stand."""
    table = get(data, 0, HEADER, "e_phoff")
    rows = [table + SEGMENT_BYTES * row for row in range(min(get(data, 0, HEADER, "e_phnum"), 100))]
    return [row for row in rows if get(data, row, SEGMENT, "p_type") == kind]


def _dynamic(random: Random, data: bytes) -> bytes:
    """An entry of the dynamic segment."""
    start = get(data, random.choice(_segments(data, 2)), SEGMENT, "p_offset") + 16 * random.randrange(24)
    tag, value = ENTRY.unpack_from(data, start)
    entry = ENTRY.pack(
        random.choice((random.choice(TAGS), random.choice(TAGS), tag)),
        random.choice((value, random.randrange(300), random.choice(LIMITS))) % 2**64,
    )
    return data[:start] + entry + data[start + 16 :]


def _shadowed(random: Random, data: bytes) -> bytes:
    """One more segment over the page of the dynamic one, where another library is asked for."""
    dynamic = random.choice(_segments(data, 2))
    address, offset = get(data, dynamic, SEGMENT, "p_vaddr"), get(data, dynamic, SEGMENT, "p_offset")
    inside = address % PAGE
    page = bytearray(data[offset - inside : offset - inside + PAGE].ljust(PAGE, b"\0"))
    ENTRY.pack_into(page, inside, 1, random.randrange(40))
    row = random.choice([row for kind in (4, 0x6474E550, 0x6474E551, 0x6474E552) for row in _segments(data, kind)])
    start = -(-len(data) // PAGE) * PAGE
    skip = random.choice((0, 0, inside, 16))
    size = random.choice((PAGE - skip, 16, inside + 16, 1))
    values = {"p_type": 1, "p_flags": random.choice((4, 6)), "p_align": PAGE, "p_memsz": size, "p_filesz": size}
    changed = put(data, row, MORE_SEGMENT, p_vaddr=address - inside + skip, p_offset=start + skip, **values)
    return changed.ljust(start, b"\0") + page


TARGET = Target("elf", seeds, change, run, short=300)
