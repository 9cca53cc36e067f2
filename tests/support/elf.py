"""Damage for ELF files: fields of headers set to whatever a test wants."""

from __future__ import annotations

import struct

HEADER = {
    "e_ident_class": (4, "B"), "e_ident_data": (5, "B"), "e_ident_version": (6, "B"), "e_ident_osabi": (7, "B"),
    "e_ident_abiversion": (8, "B"), "e_type": (16, "H"), "e_machine": (18, "H"), "e_phoff": (32, "Q"),
    "e_shoff": (40, "Q"), "e_flags": (48, "I"), "e_phentsize": (54, "H"), "e_phnum": (56, "H"),
    "e_shentsize": (58, "H"), "e_shnum": (60, "H"), "e_shstrndx": (62, "H"),
}  # fmt: skip
SECTION = {
    "sh_name": (0, "I"), "sh_type": (4, "I"), "sh_flags": (8, "Q"), "sh_offset": (24, "Q"), "sh_size": (32, "Q"),
    "sh_link": (40, "I"), "sh_info": (44, "I"), "sh_entsize": (56, "Q"),
}  # fmt: skip
SEGMENT = {
    "p_type": (0, "I"), "p_flags": (4, "I"), "p_offset": (8, "Q"), "p_vaddr": (16, "Q"), "p_filesz": (32, "Q"),
    "p_memsz": (40, "Q"), "p_align": (48, "Q"),
}  # fmt: skip
SECTION_BYTES, SEGMENT_BYTES = 64, 56


def get(image: bytes, base: int, fields: dict[str, tuple[int, str]], name: str) -> int:
    """A field of the header at `base`."""
    offset, form = fields[name]
    value: int = struct.unpack_from("<" + form, image, base + offset)[0]
    return value


def put(image: bytes, base: int, fields: dict[str, tuple[int, str]], **values: int) -> bytes:
    """The image with fields of the header at `base` changed."""
    changed = bytearray(image)
    for name, value in values.items():
        offset, form = fields[name]
        struct.pack_into("<" + form, changed, base + offset, value)
    return bytes(changed)


def with_header(image: bytes, **values: int) -> bytes:
    """The image with fields of the ELF header changed."""
    return put(image, 0, HEADER, **values)


def section_header(image: bytes, name: str) -> int:
    """Where the header of section `name` stands."""
    table = get(image, 0, HEADER, "e_shoff")
    headers = [table + SECTION_BYTES * i for i in range(get(image, 0, HEADER, "e_shnum"))]
    names = get(image, headers[get(image, 0, HEADER, "e_shstrndx")], SECTION, "sh_offset")
    for header in headers:
        start = names + get(image, header, SECTION, "sh_name")
        if image[start : image.index(b"\0", start)] == name.encode():
            return header
    raise KeyError(name)


def with_section(image: bytes, name: str, **values: int) -> bytes:
    """The image with fields of a section's header changed."""
    return put(image, section_header(image, name), SECTION, **values)


def section_range(image: bytes, name: str) -> slice:
    """Where a section's bytes stand."""
    header = section_header(image, name)
    start = get(image, header, SECTION, "sh_offset")
    return slice(start, start + get(image, header, SECTION, "sh_size"))


def with_bytes(image: bytes, name: str, data: bytes, at: int = 0) -> bytes:
    """The image with bytes of a section overwritten from `at` on."""
    start = section_range(image, name).start + at
    return image[:start] + data + image[start + len(data) :]


def segment_header(image: bytes, kind: int) -> int:
    """Where the first program header of type `kind` stands."""
    table = get(image, 0, HEADER, "e_phoff")
    for i in range(get(image, 0, HEADER, "e_phnum")):
        if get(image, table + SEGMENT_BYTES * i, SEGMENT, "p_type") == kind:
            return table + SEGMENT_BYTES * i
    raise KeyError(kind)


def with_segment(image: bytes, kind: int, **values: int) -> bytes:
    """The image with fields of the first program header of type `kind` changed."""
    return put(image, segment_header(image, kind), SEGMENT, **values)
