"""No bytes make reading a module crash, hang or take memory: each is described, or refused as BadModule."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.artifact.errors import BadModule
from kern.artifact.modules import describe
from support.elf import SECTION, get, section_header, section_range, with_bytes, with_header, with_section
from support.host_modules import shared_object
from support.nvrtc import cubin

CUDA = r"""
extern "C" __global__ void __launch_bounds__(64) first(float *out, int n, double d) { out[n] = d; }
extern "C" __global__ void second(int *out) { __shared__ int s[8]; s[threadIdx.x] = 1; __syncthreads(); *out = s[2]; }
"""
C = '#include "kern_host.h"\nKERN_KERNEL(first, "ptr,i32") { (void)launch; (void)params; }'
BYTES = 64 * 2**20


def modules() -> list[bytes]:
    abi7 = Path(__file__).parents[1] / "samples" / "abi7.cubin"
    return [cubin(CUDA, "sm_90a"), abi7.read_bytes(), shared_object(C, "-s")]


def attempt(image: bytes) -> BadModule | None:
    """The refusal of an image, if it is refused; anything but a description or BadModule fails the test."""
    refusal = None
    try:
        describe("hostile", image, "")
    except BadModule as error:
        refusal = error
    if refusal is not None:
        assert refusal.message.startswith("kernels/hostile is not a usable kernel file: ")
        assert refusal.message.isprintable()
        assert refusal.help
    return refusal


def refused_cheaply(image: bytes) -> str:
    """The message, once it is known that refusing took little memory."""
    tracemalloc.start()
    refusal = attempt(image)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES + 2 * len(image)
    assert refusal is not None
    return refusal.message


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_truncation_is_refused(which: int) -> None:
    image = modules()[which]
    for length in range(0, len(image), 7 + len(image) // 600):
        assert attempt(image[:length]) is not None, length


@given(st.integers(0, 2), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes(which: int, changes: list[tuple[int, int]]) -> None:
    image = bytearray(modules()[which])
    for offset, value in changes:
        image[offset % len(image)] = value
    attempt(bytes(image))


@given(st.integers(0, 2), st.integers(0), st.sampled_from([0, 1, 0x7F, 0xFFFF, 2**31, 2**32 - 1]), st.integers(0, 3))
def test_changed_words_of_headers_and_tables(which: int, offset: int, value: int, region: int) -> None:
    image = bytearray(modules()[which])
    table = struct.unpack_from("<Q", image, 40)[0]
    names = [".symtab", ".nv.info", ".nv.info.mixed"] if which < 2 else [".dynsym", ".dynamic", ".kern.abi"]
    if which == 0:
        names[2] = ".nv.info.first"
    found = [range(64), range(table, len(image)), *(range(len(image))[section_range(bytes(image), n)] for n in names)]
    words = found[region][: len(found[region]) // 4 * 4 : 4]
    struct.pack_into("<I", image, min(words[offset % len(words)], len(image) - 4), value)
    attempt(bytes(image))


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    assert attempt(data) is not None
    assert attempt(b"\x7fELF\x02\x01\x01" + data) is not None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"e_shoff": 2**64 - 1}, "truncated"),
        ({"e_shoff": 2**63}, "truncated"),
        ({"e_shnum": 0}, "no table of section names"),
        ({"e_shnum": 0xFFFF}, "65,535 sections"),
        ({"e_shnum": 0x7000}, "truncated"),
        ({"e_shstrndx": 0xFFFF}, "no table of section names"),
        ({"e_shstrndx": 0}, "string table"),
        ({"e_shentsize": 0}, "headers of 0 bytes"),
        ({"e_shentsize": 40}, "headers of 40 bytes"),
        ({"e_phnum": 0xFFFF}, "65,535 segments"),
        ({"e_ident_class": 1}, "64-bit"),
        ({"e_ident_data": 2}, "little-endian"),
        ({"e_ident_version": 2}, "version 1"),
        ({"e_type": 4}, "not an executable cubin"),
        ({"e_machine": 2}, "its machine is"),
    ],
)
def test_hostile_headers(damage: dict[str, int], said: str) -> None:
    assert said in refused_cheaply(with_header(cubin(CUDA, "sm_90a"), **damage))


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (".symtab", {"sh_size": 2**62}, "extends past its end"),
        (".symtab", {"sh_offset": 2**63}, "extends past its end"),
        (".symtab", {"sh_size": 25}, "an impossible size"),
        (".symtab", {"sh_link": 2**32 - 1}, "no string table"),
        (".symtab", {"sh_flags": 0x800}, "compressed"),
        (".strtab", {"sh_flags": 0x800}, "compressed"),
        (".strtab", {"sh_size": 1}, "string table"),
        (".nv.info.first", {"sh_flags": 0x800}, "compressed"),
        (".nv.info.first", {"sh_size": 2**40}, "extends past its end"),
        (".nv.info.first", {"sh_size": 30}, "truncated"),
        (".nv.info.first", {"sh_name": 2**31}, "string table"),
        (".nv.info.second", {"sh_name": 0}, "'second' has no section .nv.info"),
        (".strtab", {"sh_type": 2}, "symbol table"),
    ],
)
def test_hostile_sections(name: str, damage: dict[str, int], said: str) -> None:
    assert said in refused_cheaply(with_section(cubin(CUDA, "sm_90a"), name, **damage))


def test_a_symbol_table_that_is_its_own_string_table() -> None:
    image = cubin(CUDA, "sm_90a")
    table = struct.unpack_from("<Q", image, 40)[0]
    own = (section_header(image, ".symtab") - table) // 64
    attempt(with_section(image, ".symtab", sh_link=own))


def test_section_names_that_share_one_long_string() -> None:
    """4,000 sections whose names are tails of one string of 60,000 bytes would take 240 MB."""
    image = bytearray(cubin(CUDA, "sm_90a"))
    strings, count = len(image), 4000
    image += b"n" * 60_000 + b"\0"
    table = len(image)
    header = bytearray(64)
    struct.pack_into("<IIQQQQ", header, 0, 0, 3, 0, 0, strings, 60_001)
    image += bytes(header) * count
    message = refused_cheaply(with_header(bytes(image), e_shoff=table, e_shnum=count, e_shstrndx=1))
    assert "names take more than" in message


def test_overlapping_info_sections() -> None:
    """Kernels whose .nv.info sections are all the same 5 MB: each pass over it is affordable, many are not."""
    image = cubin(CUDA, "sm_90a")
    start = len(image)
    image += struct.pack("<BBH", 3, 0x50, 0) * (5 * 2**18)
    for name in (".nv.info.first", ".nv.info.second"):
        image = with_section(image, name, sh_offset=start, sh_size=5 * 2**20)
    assert "sections overlap" in refused_cheaply(image)


def test_a_huge_symbol_table() -> None:
    image = cubin(CUDA, "sm_90a")
    size = 24 * (2**20 + 1)
    image = with_section(image + bytes(size), ".symtab", sh_offset=len(image), sh_size=size)
    assert "an impossible size" in refused_cheaply(image)


def info_entries(image: bytes, name: str, code: int) -> list[int]:
    """The offsets of the attributes of one code in an info section."""
    data, offset, found = image[section_range(image, name)], 0, []
    while offset < len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, offset)
        if attribute == code:
            found.append(offset)
        offset += 4 + (value if form == 4 else 0)
    return found


def test_parameters_that_are_not_numbered_in_order() -> None:
    image = cubin(CUDA, "sm_90a")
    offset = info_entries(image, ".nv.info.first", 0x17)[0]
    for ordinal in (1, 3, 0xFFFF):
        damaged = with_bytes(image, ".nv.info.first", struct.pack("<H", ordinal), offset + 8)
        assert "does not number its parameters" in refused_cheaply(damaged)


def test_parameters_that_take_another_number_of_bytes_than_they_say() -> None:
    image = cubin(CUDA, "sm_90a")
    (bank,) = info_entries(image, ".nv.info.first", 0x19)
    message = refused_cheaply(with_bytes(image, ".nv.info.first", struct.pack("<H", 32), bank + 2))
    assert "end at byte 24, and together take 32" in message
    param = info_entries(image, ".nv.info.first", 0x17)[0]
    message = refused_cheaply(with_bytes(image, ".nv.info.first", b"\x7e", param + 1))
    assert "number its parameters" in message or "and together take" in message


@pytest.mark.parametrize(("section", "code"), [(".nv.info.first", 0x17), (".nv.info.first", 0x05), (".nv.info", 0x2F)])
def test_attributes_of_another_length(section: str, code: int) -> None:
    image = cubin(CUDA, "sm_90a")
    offset = info_entries(image, section, code)[0]
    assert get(image, section_header(image, section), SECTION, "sh_size") > 8
    for length in (0, 1, 4, 0xFFFF):
        refused_cheaply(with_bytes(image, section, struct.pack("<H", length), offset + 2))
