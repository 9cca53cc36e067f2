"""Resolving grows with the files and the steps, not with their product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kern.artifact import open_folder, resolve
from kern.artifact.errors import BadModule
from kern.artifact.modules import describe
from kern.manifest.reading import read
from support.elf import HEADER, SECTION, get, put
from support.growing import copy as document
from support.growing import kernel, step, text
from support.host_modules import shared_object
from support.work import growth

C = '#include "kern_host.h"\nKERN_KERNEL(copy_f32, "ptr,ptr") { (void)launch; (void)params; }'
STEPS = 30
"""Steps for each file, so that what is done for each step and file would outweigh reading the files."""

CASES = {
    "a kernel in every file": (C, {}, "K1006"),
    "a kernel in every file, with other parameters": (
        C,
        {"params": ["out buffer<f32>"], "args": [{"arg": 0}]},
        "K1007",
    ),
    "a kernel in no file": (C, {"symbol": "nothing"}, "K1005"),
    "files that are none": ("", {}, "K1004"),
}


@pytest.mark.parametrize("case", CASES)
def test_resolving_grows_linearly(case: str, tmp_path: Path) -> None:
    source, fields, code = CASES[case]
    image = shared_object(source) if source else b""

    def resolving(n: int) -> Callable[[], object]:
        path = tmp_path / str(n)
        (path / "kernels").mkdir(parents=True, exist_ok=True)
        for index in range(n):
            (path / "kernels" / f"{index}.so").write_bytes(image)
        data = text(document(kernels={"k": kernel(*(step(**fields) for _ in range(STEPS * n)))}))
        (path / "manifest.json").write_bytes(data)
        manifest = read(data).manifest
        assert manifest is not None

        def work() -> None:
            with open_folder(path) as folder:
                found = resolve(manifest, folder).diagnostics
            assert {diagnostic.code for diagnostic in found} == {code}
            assert all(diagnostic.message.count("kernels/") <= 6 for diagnostic in found)
            assert all(len(diagnostic.message) + len(diagnostic.help) < 1000 for diagnostic in found)

        return work

    resolving(2)()
    assert growth(resolving, 4) < 2.6


def test_many_short_files_cannot_share_out_long_names() -> None:
    """Sections that all have the file's longest name: each file is read for no more than a multiple of its length."""
    image = shared_object(C)
    header = get(image, 0, HEADER, "e_shoff")
    names = header + 64 * get(image, 0, HEADER, "e_shstrndx")
    name = b"n" * 60_000 + b"\0"
    image = put(image, names, SECTION, sh_offset=len(image), sh_size=len(name)) + name
    for index in range(get(image, 0, HEADER, "e_shnum")):
        image = put(image, header + 64 * index, SECTION, sh_name=0)
    with pytest.raises(BadModule, match="names take more than 4 times the size of the file"):
        describe("k.so", image, "")


def test_help_for_missing_kernels_is_looked_for_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kern.artifact.lookup.MAX_SEARCHED", 5 * len("copy_f32" + "nothing"))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.so").write_bytes(shared_object(C))
    data = text(document(kernels={"k": kernel(*(step(symbol="nothing") for _ in range(8)))}))
    (tmp_path / "manifest.json").write_bytes(data)
    manifest = read(data).manifest
    assert manifest is not None
    with open_folder(tmp_path) as folder:
        helps = [diagnostic.help for diagnostic in resolve(manifest, folder).diagnostics]
    assert helps[:5] == ["kernels there: copy_f32"] * 5
    assert len(helps) == 8
    assert all("nm -D" in help for help in helps[5:])
