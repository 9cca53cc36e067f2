"""Documents that are made from the code are current, and what they show is what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kern
from kern import verify
from kern.manifest.reading import read
from kern.text.generator import Generator
from kern.text.tokenizer import Tokenizer
from kern.verifier import check

ROOT = Path(__file__).parents[1]


def test_the_diagnostics_index_is_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False)
    assert done.returncode == 0, "run `make docs`"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_manifest_in_the_format_reference_verifies() -> None:
    text = (ROOT / "docs" / "format.md").read_text()
    whole = next(block for block in re.findall(r"```json\n(.*?)```", text, re.S) if '"programs"' in block)
    reading = read(whole.encode())
    assert reading.manifest is not None, reading.diagnostics
    assert check(reading.manifest) == ()


def test_the_provider_in_the_guide_works_as_shown(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "write-a-provider.md").read_text()
    provider, caller = re.findall(r"```python\n(.*?)```", text, re.S)[:2]
    for name, code in (("halve.py", provider), ("caller.py", caller)):
        (tmp_path / name).write_text(code)
        done = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.  0.5 1.  1.5]"
    assert verify(tmp_path / "halve", "host").ok


def test_the_swapped_kernel_gives_the_same_tokens(smollm2: Path, tmp_path: Path) -> None:
    swap = ROOT / "examples" / "swap-a-kernel" / "swap.py"
    subprocess.run([sys.executable, swap, smollm2, tmp_path / "swapped"], check=True)
    assert verify(tmp_path / "swapped", "host").ok
    before, after = ((folder / "manifest.json").read_text().splitlines() for folder in (smollm2, tmp_path / "swapped"))
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 3
    assert generated(tmp_path / "swapped") == generated(smollm2)


def test_swapping_says_in_a_line_why_it_cannot(tmp_path: Path) -> None:
    swap = ROOT / "examples" / "swap-a-kernel" / "swap.py"
    (tmp_path / "manifest.json").touch()
    for arguments, word in (([], "usage"), ([tmp_path, tmp_path], "exists"), ([tmp_path / "gone", "new"], "manifest")):
        done = subprocess.run([sys.executable, swap, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 1


def generated(folder: Path) -> list[int]:
    with kern.load(folder, capacity=64) as executable:
        generation = Generator(executable, Tokenizer.load(folder)).generate("The capital of France is", max_tokens=24)
        return [token.id for token in generation]
