"""GGUF files as data, to be changed part by part: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
MOST = 100_000
"""Entries that are read of one list: files with longer lists are not changed part by part."""


class Malformed(Exception):
    """Bytes that are not a GGUF file."""


@dataclass(frozen=True)
class Value:
    """A value of the metadata; that of an array is its entries' type and the list of them."""

    type: int
    content: Any


@dataclass(frozen=True)
class Info:
    """A tensor as the header describes it."""

    name: bytes
    dims: tuple[int, ...]
    type: int
    offset: int


@dataclass(frozen=True)
class Gguf:
    """A whole file; `pairs` are its metadata in order."""

    pairs: tuple[tuple[bytes, Value], ...]
    infos: tuple[Info, ...]
    data: bytes
    version: int = 3
    alignment: int = 32


def written(file: Gguf) -> tuple[bytes, list[tuple[int, int]]]:
    """The file's bytes, and where its counts, lengths, types and offsets stand: place and size of each.

    Of the lengths of an array's strings it is the first.
    """
    out, fields, noted = bytearray(b"GGUF"), list[tuple[int, int]](), True

    def number(value: int, size: int) -> None:
        if noted:
            fields.append((len(out), size))
        out.extend((value % 256**size).to_bytes(size, "little"))

    def string(text: bytes) -> None:
        number(len(text), 8)
        out.extend(text)

    def content(kind: int, value: Any) -> None:
        nonlocal noted
        if kind == STRING:
            string(value)
        elif kind == ARRAY:
            number(value[0], 4)
            number(len(value[1]), 8)
            for entry in value[1]:
                content(value[0], entry)
                noted = False
            noted = True
        elif kind in (F32, F64):
            out.extend(struct.pack("<" + FORMS[kind], value))
        elif kind in FORMS:
            size = struct.calcsize(FORMS[kind])
            out.extend((value % 256**size).to_bytes(size, "little"))

    number(file.version, 4)
    number(len(file.infos), 8)
    number(len(file.pairs), 8)
    for key, value in file.pairs:
        string(key)
        number(value.type, 4)
        content(value.type, value.content)
    for info in file.infos:
        string(info.name)
        number(len(info.dims), 4)
        for extent in info.dims:
            number(extent, 8)
        number(info.type, 4)
        number(info.offset, 8)
    out.extend(bytes(-len(out) % file.alignment))
    return bytes(out) + file.data, fields


def parsed(data: bytes) -> Gguf:
    """The file behind bytes. Raises Malformed."""
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        if not 0 <= size <= len(data) - place:
            raise Malformed("it is cut off")
        place += size
        return data[place - size : place]

    def number(size: int, most: int = 2**64) -> int:
        value = int.from_bytes(take(size), "little")
        if value > most:
            raise Malformed("a count that is too large")
        return value

    def content(kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return take(number(8))
        if kind == ARRAY and depth < 8:
            inner = number(4)
            return inner, [content(inner, depth + 1) for _ in range(number(8, MOST))]
        if kind not in FORMS:
            raise Malformed("an unknown type")
        return struct.unpack("<" + FORMS[kind], take(struct.calcsize(FORMS[kind])))[0]

    if take(4) != b"GGUF":
        raise Malformed("no magic")
    version, infos, pairs = number(4), number(8, MOST), number(8, MOST)
    metadata = []
    for _ in range(pairs):
        key, kind = take(number(8)), number(4)
        metadata.append((key, Value(kind, content(kind))))
    found = []
    for _ in range(infos):
        name = take(number(8))
        dims = tuple(number(8) for _ in range(number(4, 64)))
        found.append(Info(name, dims, number(4), number(8)))
    alignment = next((value.content for key, value in metadata if key == b"general.alignment"), 32)
    if not isinstance(alignment, int) or not 0 < alignment < 2**16:
        raise Malformed("an alignment that cannot be")
    take(min(-place % alignment, len(data) - place))
    return Gguf(tuple(metadata), tuple(found), data[place:], version, alignment)


def with_pair(file: Gguf, at: int, *pairs: tuple[bytes, Value]) -> Gguf:
    """The file with others in the place of one pair of the metadata."""
    return replace(file, pairs=(*file.pairs[:at], *pairs, *file.pairs[at + 1 :]))


def with_info(file: Gguf, at: int, *infos: Info) -> Gguf:
    """The file with others in the place of one tensor."""
    return replace(file, infos=(*file.infos[:at], *infos, *file.infos[at + 1 :]))
