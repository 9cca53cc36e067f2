"""Host modules describe themselves without being loaded, and ask for nothing unexpected."""

from __future__ import annotations

import pytest

from kern.artifact.errors import BadModule
from kern.artifact.modules import describe
from kern.artifact.types import KernelInfo, ModuleInfo
from kern.manifest.params import Layout
from support.elf import SEGMENT, get, segment_header, with_bytes, with_header, with_section, with_segment
from support.host_modules import BASELINE, FLAGS, shared_object

SOURCE = """
#include "kern_host.h"
KERN_KERNEL(mixed, "ptr,u8,i64,i32,u32,f32,ptr") { (void)launch; (void)params; }
KERN_KERNEL(nothing, "") { (void)launch; (void)params; }
__attribute__((visibility("default"))) int helper(void) { return 1; }
"""
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_STACK = 1, 2, 3, 4, 0x6474E551


def read(image: bytes) -> ModuleInfo:
    return describe("k.so", image, "")


def with_abi(abi: bytes) -> bytes:
    """A module of one kernel whose ABI string, mixed(ptr,u8,i32), begins with other bytes."""
    source = '#include "kern_host.h"\nKERN_KERNEL(mixed, "ptr,u8,i32") { (void)launch; (void)params; }'
    return with_bytes(shared_object(source), ".kern.abi", abi)


def test_target_kernels_and_layouts() -> None:
    found = read(shared_object(SOURCE))
    assert (found.kind, found.target) == ("host", BASELINE)
    assert found.kernels == {
        "mixed": KernelInfo(
            "mixed",
            Layout((0, 8, 16, 24, 28, 32, 40), (8, 1, 8, 4, 4, 4, 8)),
            ("ptr", "u8", "i64", "i32", "u32", "f32", "ptr"),
        ),
        "nothing": KernelInfo("nothing", Layout((), ()), ()),
    }


def test_a_module_without_kernels_describes_none() -> None:
    source = '#include "kern_host.h"\n__attribute__((section(".kern.abi"), used)) const char none[1] = "";'
    assert read(shared_object(source)).kernels == {}


def test_libraries_of_the_c_library_and_of_openmp_are_allowed() -> None:
    source = """
    #include <math.h>
    #include <stdlib.h>
    #include "kern_host.h"
    KERN_KERNEL(root, "ptr,i32") {
        float *out = KERN_ARG(float *, 0);
        #pragma omp parallel for
        for (int i = 0; i < KERN_ARG(int, 1); i++) out[i] = sinf(out[i]) + rand();
        (void)launch;
    }"""
    assert set(read(shared_object(source, "-fopenmp", "-lm")).kernels) == {"root"}


@pytest.mark.parametrize("flags", [FLAGS, (*FLAGS, "-nodefaultlibs")], ids=["function", "of no type"])
@pytest.mark.parametrize(
    ("function", "effect"),
    [("_exit", "ends"), ("_Exit", "ends"), ("daemon", "ends"), ("execve", "replaces"), ("fexecve", "replaces"),
     ("fork", "copies"), ("vfork", "copies"), ("__fork", "copies")],
)  # fmt: skip
def test_functions_after_which_the_process_is_gone_or_there_twice_are_refused(
    function: str, effect: str, flags: tuple[str, ...]
) -> None:
    source = f'{SOURCE}\nextern int other(void) __asm__("{function}"); int calls(void) {{ return other(); }}'
    with pytest.raises(BadModule, match=f"imports `{function}`, which {effect} the process") as refusal:
        read(shared_object(source, flags=flags))
    assert "abort()" in refusal.value.help


def test_a_function_whose_address_alone_is_taken_is_imported_too() -> None:
    source = SOURCE + "\n#include <unistd.h>\nvoid (*const table[])(int) = {_exit};"
    with pytest.raises(BadModule, match="imports `_exit`"):
        read(shared_object(source, "-Wl,-z,now"))


def test_functions_by_which_libraries_give_up_are_allowed() -> None:
    """Static libraries of linear algebra call exit, and static runtimes of OpenMP pthread_exit."""
    source = """
    #include <assert.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include "kern_host.h"
    static void fork(void) {}  // a name of this module
    KERN_KERNEL(giving_up, "i32") {
        (void)launch;
        assert(KERN_ARG(int, 0));
        fork();
        if (KERN_ARG(int, 0) == 1) abort();
        if (KERN_ARG(int, 0) == 2) exit(1);
        if (KERN_ARG(int, 0) == 3) raise(SIGTERM);
        if (KERN_ARG(int, 0) == 4) pthread_exit(0);
    }"""
    assert set(read(shared_object(source)).kernels) == {"giving_up"}


@pytest.mark.parametrize("flag", ["-Wl,-rpath,/tmp", "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags,-rpath,/tmp"])
def test_library_search_paths_are_refused(flag: str) -> None:
    with pytest.raises(BadModule, match=r"search path \(DT_R(UN)?PATH\)"):
        read(shared_object(SOURCE, flag))


def test_other_libraries_are_refused() -> None:
    with pytest.raises(BadModule, match=r"needs the library 'libutil\.so\.1'") as refusal:
        read(shared_object(SOURCE, "-Wl,--no-as-needed", "-l:libutil.so.1"))
    assert "libgomp.so.1" in refusal.value.help


@pytest.mark.parametrize("flag", ["-Wl,-f,other.so", "-Wl,-F,other.so", "-Wl,--audit,other.so", "-Wl,-P,other.so"])
def test_other_ways_to_bring_in_code_are_refused(flag: str) -> None:
    with pytest.raises(BadModule, match=r"asks the loader for other code \(DT_"):
        read(shared_object(SOURCE, flag))


def test_the_dynamic_section_is_not_believed_over_the_dynamic_segment() -> None:
    image = shared_object(SOURCE, "-Wl,-rpath,/tmp")
    for lie in ({"sh_size": 0}, {"sh_type": 1}, {"sh_offset": 0}):
        with pytest.raises(BadModule, match="search path"):
            read(with_section(image, ".dynamic", **lie))
    with pytest.raises(BadModule, match="search path"):
        read(with_segment(image, PT_DYNAMIC, p_offset=0))


def test_a_program_and_an_object_file_are_refused() -> None:
    with pytest.raises(BadModule, match="not a shared object"):
        read(shared_object(SOURCE, flags=("-c",)))
    with pytest.raises(BadModule, match="not a shared object"):
        read(shared_object(SOURCE + "int main(void) { return 0; }", flags=("-static",)))


def test_a_shared_object_of_something_else_is_refused() -> None:
    with pytest.raises(BadModule, match=r"no section \.kern\.target") as refusal:
        read(shared_object("int f(void) { return 1; }"))
    assert "kern_host.h" in refusal.value.help


@pytest.mark.parametrize("target", ["", "x86-64", "x86-64-v5", "armv7", "X86-64-v3", "x86-64-v3 "])
def test_unknown_targets_are_refused(target: str) -> None:
    with pytest.raises(BadModule, match=r"\.kern\.target"):
        read(shared_object(SOURCE, target=target))


def test_a_target_of_another_machine_is_refused() -> None:
    other = "aarch64" if BASELINE != "aarch64" else "x86-64-v3"
    with pytest.raises(BadModule, match="but its code is for EM_"):
        read(shared_object(SOURCE, target=other))


def test_several_targets_are_refused() -> None:
    source = (
        SOURCE + '\nstatic const char other[] __attribute__((section(".kern.target"), used, aligned(1))) = "x86-64-v4";'
    )
    with pytest.raises(BadModule, match=r"'x86-64-v4', not one instruction set|'x86-64-v2', 'x86-64-v4'"):
        read(shared_object(source))


@pytest.mark.parametrize(
    "abi",
    [b"mixed[", b"mixed(ptr;", b"mixed(ptr,,", b"mixed(f16,", b"mixed ptr", b"mi-ed(", b"mixed(ptr u", b"\xffixed("],
)
def test_parameter_lists_that_are_none_are_refused(abi: bytes) -> None:
    with pytest.raises(BadModule, match=r"section \.kern\.abi"):
        read(with_abi(abi))


def test_a_kernel_that_is_not_exported_is_refused() -> None:
    with pytest.raises(BadModule, match="'nixed' but does not export it"):
        read(with_abi(b"nixed"))


def test_a_kernel_described_twice_is_refused() -> None:
    source = (
        SOURCE + '\nstatic const char again[] __attribute__((section(".kern.abi"), used, aligned(1))) = "nothing()";'
    )
    with pytest.raises(BadModule, match="'nothing' twice"):
        read(shared_object(source))


@pytest.mark.parametrize("name", [".kern.abi", ".kern.target"])
@pytest.mark.parametrize(
    "damage", [{"sh_size": 3}, {"sh_size": 2**21}, {"sh_size": 2**63}, {"sh_flags": 0x800}, {"sh_type": 8}]
)
def test_damaged_sections_are_refused(name: str, damage: dict[str, int]) -> None:
    image = shared_object(SOURCE) + bytes(2**21)
    if damage == {"sh_type": 8} and name == ".kern.abi":  # without bytes it describes no kernel
        assert read(with_section(image, name, **damage)).kernels == {}
        return
    with pytest.raises(BadModule):
        read(with_section(image, name, **damage))


@pytest.mark.parametrize("machine", [0, 3, 40, 243, 0xFFFF])
def test_other_machines_are_refused(machine: int) -> None:
    with pytest.raises(BadModule, match="its machine is"):
        read(with_header(shared_object(SOURCE), e_machine=machine))


def test_dynamic_segments_that_lie_outside_or_never_end_are_refused() -> None:
    image = shared_object(SOURCE)
    with pytest.raises(BadModule, match="is outside the file"):
        read(with_segment(image, PT_DYNAMIC, p_vaddr=2**62))
    with pytest.raises(BadModule, match="does not end"):
        read(with_segment(image, PT_DYNAMIC, p_filesz=16))
    with pytest.raises(BadModule, match="0 dynamic segments"):
        read(with_segment(image, PT_DYNAMIC, p_type=0))
    with pytest.raises(BadModule, match="truncated"):
        read(with_segment(image, PT_LOAD, p_filesz=2**40))


@pytest.mark.parametrize(
    "flag",
    [
        "-Wl,-z,noseparate-code", "-Wl,-z,separate-code", "-Wl,-z,norelro", "-Wl,-z,max-page-size=65536",
        "-Wl,-z,max-page-size=0x200000", "-Wl,-z,now", "-Wl,--hash-style=both", "-s",
    ],
)  # fmt: skip
def test_what_linkers_make_is_read(flag: str) -> None:
    assert set(read(shared_object(SOURCE, flag)).kernels) == {"mixed", "nothing"}


def shadowed(address: int) -> bytes:
    """A module whose dynamic segment is covered by a page of another segment, at `address` within that page.

    The page holds another dynamic segment, which the loader would follow.
    """
    image = shared_object(SOURCE)
    dynamic = segment_header(image, PT_DYNAMIC)
    page = get(image, dynamic, SEGMENT, "p_vaddr") // 4096 * 4096
    within = get(image, dynamic, SEGMENT, "p_offset") // 4096 * 4096
    image += bytes(-len(image) % 4096)
    hidden = {"p_type": PT_LOAD, "p_flags": 6, "p_align": 4096, "p_vaddr": page + address}
    bytes_there = {"p_offset": len(image) + address, "p_filesz": 4096 - address, "p_memsz": 4096 - address}
    return with_segment(image, PT_NOTE, **hidden, **bytes_there) + image[within : within + 4096]


@pytest.mark.parametrize("address", [0, 4095])
def test_a_segment_that_covers_another_is_refused(address: int) -> None:
    with pytest.raises(BadModule, match="shares a page with the one before it"):
        read(shadowed(address))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"p_vaddr": 0x100000}, "shares a page"),
        ({"p_memsz": 2**40}, "shares a page"),
        ({"p_offset": 8}, "is not where its address says"),
        ({"p_memsz": 1}, "is not where its address says"),
        ({"p_align": 8}, "not aligned to pages"),
    ],
)
def test_segments_that_are_not_where_their_addresses_say_are_refused(damage: dict[str, int], reason: str) -> None:
    with pytest.raises(BadModule, match=reason):
        read(with_segment(shared_object(SOURCE), PT_LOAD, **damage))


@pytest.mark.parametrize(
    ("kind", "damage", "reason"),
    [
        (PT_NOTE, {"p_type": PT_INTERP}, "program interpreter"),
        (PT_NOTE, {"p_type": PT_DYNAMIC}, "2 dynamic segments"),
        (PT_GNU_STACK, {"p_flags": 7}, "executable stack"),
        (PT_GNU_STACK, {"p_type": PT_NOTE}, "executable stack"),
    ],
)
def test_what_a_kernel_has_no_need_of_is_refused(kind: int, damage: dict[str, int], reason: str) -> None:
    with pytest.raises(BadModule, match=reason):
        read(with_segment(shared_object(SOURCE), kind, **damage))


@pytest.mark.parametrize("flag", ["-Wl,-z,global", "-Wl,-z,interpose"])
def test_symbols_for_other_libraries_are_refused(flag: str) -> None:
    with pytest.raises(BadModule, match="offers its symbols"):
        read(shared_object(SOURCE, flag))


def test_code_that_is_rewritten_while_it_is_loaded_is_refused() -> None:
    source = SOURCE + '\n__asm__(".text\\n.quad helper\\n");'
    with pytest.raises(BadModule, match="DT_TEXTREL"):
        read(shared_object(source, "-Wl,-z,notext"))


def test_symbols_are_those_that_the_loader_reads() -> None:
    """A section of symbols next to the one in the dynamic segment could say that kernels are exported which are not."""
    image = shared_object(SOURCE)
    with pytest.raises(BadModule, match="not the symbol table that the loader reads"):
        read(with_section(image + bytes(4096), ".dynsym", sh_offset=len(image)))
