"""`kern.verify`: a manifest file, an artifact folder, what cannot be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import kern
from kern.artifact.errors import ArtifactError, UnknownTarget
from kern.device.host.target import host_target
from kern.verification.verify import Unreadable
from support.toy import toy_artifact


def test_a_folder_and_its_manifest_verify(toy: Path) -> None:
    for path in (toy, str(toy), toy / "manifest.json"):
        report = kern.verify(path)
        assert report.ok
        assert report.diagnostics == ()
        assert report.path == Path(path)


def test_a_manifest_without_a_folder_is_verified_without_files(toy: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    alone.write_bytes((toy / "manifest.json").read_bytes())
    assert kern.verify(alone).ok
    (tmp_path / "manifest.json").write_bytes(alone.read_bytes())
    report = kern.verify(tmp_path)
    assert {located.diagnostic.code[:3] for located in report.diagnostics} == {"K10"}


def test_diagnostics_are_located_and_ordered_as_in_the_file(tmp_path: Path) -> None:
    folder = toy_artifact(tmp_path / "invalid")
    manifest = folder / "manifest.json"
    text = manifest.read_text()
    text = text.replace('"state": "pool"', '"state": "pond"', 1).replace('"max": 16', '"max": 0', 1)
    manifest.write_text(text)
    report = kern.verify(manifest)
    assert not report.ok
    lines = [located.line for located in report.diagnostics]
    assert lines == sorted(lines)
    pond = next(line for line, content in enumerate(text.splitlines(), 1) if "pond" in content)
    assert any(located.line == pond and "pond" in report.source.line(located.line) for located in report.diagnostics)


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("kernels/recall/impl/steps/0/cubin", "../toy.so", "K0512"),
        ("kernels/recall/impl/steps/0/cubin", "", "K0512"),
        ("kernels/recall/impl/steps/0/cubin", None, "K0511"),
        ("kernels/recall/impl/steps/0/sha256", "abc", "K0510"),
        ("kernels/recall/impl/steps/0/symbol", "", "K0502"),
        ("buffers/gain/shape", [], "K0401"),
        ("buffers/gain/shape", [0], "K0402"),
        ("buffers/gain/shape", [{"mul": [8, 0]}], "K0406"),
        ("buffers/gain/shape", [2**63 - 1], "K0405"),
        ("buffers/spare", {"dtype": "f32", "shape": [8], "class": "weight"}, "K0903"),
    ],
)
def test_one_cause_gives_one_diagnostic_of_all_ten_rules(tmp_path: Path, pointer: str, value: Any, code: str) -> None:
    folder = toy_artifact(tmp_path / "invalid")
    document = json.loads((folder / "manifest.json").read_text())
    *parents, last = pointer.split("/")
    place = document
    for parent in parents:
        place = place[int(parent) if parent.isdecimal() else parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    (folder / "manifest.json").write_text(json.dumps(document))
    assert [located.diagnostic.code for located in kern.verify(folder).diagnostics] == [code]


def test_text_that_is_not_a_manifest_is_a_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text('{\n "meta": oops}')
    (located,) = kern.verify(path).diagnostics
    assert (located.line, located.column) == (2, 10)
    assert located.diagnostic.code.startswith("K01")
    assert [one.diagnostic.code for one in kern.verify(tmp_path).diagnostics] == [located.diagnostic.code]


def test_the_target_is_what_the_kernels_must_run_on(toy: Path) -> None:
    assert kern.verify(toy, "host").ok
    assert kern.verify(toy, host_target()).ok
    report = kern.verify(toy, "sm_90")
    assert ["sm_90" in located.diagnostic.message for located in report.diagnostics] == [True]
    with pytest.raises(UnknownTarget):
        kern.verify(toy, "sparc")


def test_what_cannot_be_read_is_a_one_line_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "absent.json", tmp_path / "fifo", tmp_path / "absent" / "x.json"):
        with pytest.raises((ArtifactError, Unreadable)) as caught:
            kern.verify(path)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        assert caught.value.help


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "a/\ud800", "file.json/x", "closed/x.json"])
def test_a_path_that_cannot_be_opened_is_unreadable(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.json").touch()
    (tmp_path / "closed").mkdir(mode=0)
    if os.geteuid() == 0 and name.startswith("closed"):
        pytest.skip("nothing is closed to root")
    with pytest.raises(Unreadable) as caught:
        kern.verify(f"{tmp_path}/{name}")
    assert caught.value.message.isprintable()
    assert caught.value.help


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 36)
    (located,) = kern.verify(path).diagnostics
    assert located.diagnostic.code == "K0110"
