"""Documents that are made from the code are current, and what they show is what the code says."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import kern
from kern import verify
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.cli import main
from kern.contracts.text import ROUND
from kern.engine.generator import Generator
from kern.manifest.builder import ManifestBuilder
from kern.manifest.reading import read
from kern.manifest.types import BufferArg
from kern.runtime.executable import Executable
from kern.text.tokenizer import Tokenizer
from kern.verifier import check

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_pages_made_from_the_code_are_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False)
    assert done.returncode == 0, "run `make docs`"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")], ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if "://" not in target:
            linked = page.parent / target if target else page
            assert linked.exists(), target
            assert not heading or heading in headings(linked), f"{target}#{heading}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", *(f"docs/{page}" for page in PAGES)])
def test_the_modules_that_a_page_names_exist(page: str) -> None:
    for name in re.findall(r"`(kern(?:\.\w+)+)", (ROOT / page).read_text()):
        assert exists(name), name


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
    shown = next(block for block in re.findall(r"```console\n(.*?)```", text, re.S) if "kern call" in block)
    assert printed(shown, tmp_path) == [line for line in shown.splitlines() if not line.startswith("$ ")]
    assert np.load(tmp_path / "y.npy").tolist() == [0, 0.5, 1, 1.5]


def test_the_manifest_with_a_carry_in_the_guide_verifies(tmp_path: Path) -> None:
    page = blocks("write-a-provider.md")
    (tmp_path / "running_sum.py").write_text(page["python"][-1])
    console = page["console"][-1]
    assert printed(console, tmp_path) == output_of(console)


def test_the_provider_page_has_every_method_of_the_builder() -> None:
    rows = [row[0] for row in table("write-a-provider.md", "method")]
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert named == {name for name, value in vars(ManifestBuilder).items() if callable(value) and name[0] != "_"}


def test_the_kernels_in_the_guide_work_as_shown(tmp_path: Path) -> None:
    page = blocks("write-a-kernel.md")
    (source,), (cuda,), (provider, *programs, compile_cuda) = page["c"], page["cuda"], page["python"]
    (tmp_path / "dense.c").write_text(source)
    (tmp_path / "dense.py").write_text(provider)
    (tmp_path / "scale.cu").write_text(cuda)
    *consoles, timed, verified = page["console"]
    for console in consoles:
        assert printed(console, tmp_path) == output_of(console)
    for number, program in enumerate((*programs, compile_cuda)):
        (tmp_path / f"program{number}.py").write_text(program)
        assert printed(f"$ python program{number}.py", tmp_path) == re.findall(r"print\(.*# (.*)", program)
    assert list(map(without_numbers, printed(timed, tmp_path))) == list(map(without_numbers, output_of(timed)))
    whole = next(block for block in blocks("format.md")["json"] if '"programs"' in block)
    (tmp_path / "scale" / "manifest.json").write_text(whole)
    assert printed(verified, tmp_path) == output_of(verified)


def test_a_run_takes_the_steps_of_its_page_in_order(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "life-of-a-run.md").read_text()
    rows = re.findall(r"^\|.*\| `([\w/]+\.py)` \| `([\w.]+)` \|$", page, re.M)
    assert len(rows) > 20
    source = Path(kern.__file__).parent
    called: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{source}/"):
            called[frame.f_code.co_filename.removeprefix(f"{source}/"), frame.f_code.co_qualname] += 1

    command = ["kern", "run", str(smollm2), "--prompt", "The capital of France is", "--max-tokens", "2"]
    monkeypatch.setattr(sys, "argv", command)
    sys.setprofile(count)
    with pytest.raises(SystemExit) as ended:
        main()
    sys.setprofile(None)
    assert ended.value.code == 0
    assert [row for row in rows if row not in called] == []
    assert [row for row in called if row in rows] == rows, "in the order of the first calls"
    assert called["artifact/folder.py", "open_folder"] == 1


def test_the_public_names_of_the_python_page_can_be_imported() -> None:
    for row in table("python-api.md", "import"):
        first, *others = re.findall(r"`([\w.]+)`", row[0])
        module, _, name = first.rpartition(".")
        for each in (name, *others):
            if "." in each:
                module, _, each = each.rpartition(".")
            assert hasattr(importlib.import_module(module), each), f"{module}.{each}"


def test_the_python_page_has_every_method_of_an_executable() -> None:
    named = {name for row in table("python-api.md", "method") for name in re.findall(r"`(\w+)\(", row[0])}
    assert named == {name for name, value in vars(Executable).items() if callable(value) and name[0] != "_"}


def test_the_python_page_has_every_option_of_load() -> None:
    named = [row[0].strip("`") for row in table("python-api.md", "argument")]
    assert named == list(inspect.signature(kern.load).parameters)


def test_the_programs_of_the_python_page_run(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "smollm2").symlink_to(smollm2)
    programs = blocks("python-api.md")["python"]
    loaded, stepped, text, several, refused, built = (run_program(program, tmp_path) for program in programs)
    assert loaded == ["host 6 programs"]
    assert all(float(line.split()[-1]) > 0 for line in stepped)
    assert stepped[-1].startswith("step · argmax ")
    assert text[0] == " Paris"
    assert several[-3].startswith("stop_text  Paris")
    assert {line.split()[0] for line in several[:-3]} >= {"0", "1", "2"}
    assert refused == ["folder-unreadable"]
    assert verify(tmp_path / "build" / "tiny", "host").ok, built


def test_the_concepts_are_three_hundred_words() -> None:
    text = re.sub(r"^\[.*", "", (ROOT / "docs" / "concepts.md").read_text(), flags=re.M)
    assert len(re.findall(r"[\w'][\w'-]*", text)) <= 300


def test_the_swapped_kernel_gives_the_same_tokens(smollm2: Path, tmp_path: Path) -> None:
    swap = ROOT / "examples" / "swap-a-kernel" / "swap.py"
    subprocess.run([sys.executable, swap, smollm2, tmp_path / "swapped"], check=True)
    assert verify(tmp_path / "swapped", "host").ok
    before, after = ((folder / "manifest.json").read_text().splitlines() for folder in (smollm2, tmp_path / "swapped"))
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 3
    assert generated(tmp_path / "swapped") == generated(smollm2)

    text = (ROOT / "docs" / "swap-a-kernel.md").read_text()
    (tmp_path / "inputs.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "smollm2").symlink_to(smollm2)
    (tmp_path / "build" / "swapped").symlink_to(tmp_path / "swapped")
    shown = next(block for block in re.findall(r"```console\n(.*?)```", text, re.S) if "kern call" in block)
    *outputs, difference = printed(shown, tmp_path)
    assert outputs == ["logits: f32 [1, 49152] in before.npy", "logits: f32 [1, 49152] in after.npy"]
    assert float(difference) < 0.02
    assert np.load(tmp_path / "before.npy").argmax() == 7042, "what the model says"


def test_swapping_says_in_a_line_why_it_cannot(tmp_path: Path) -> None:
    swap = ROOT / "examples" / "swap-a-kernel" / "swap.py"
    (tmp_path / "manifest.json").touch()
    for arguments, word in (([], "usage"), ([tmp_path, tmp_path], "exists"), ([tmp_path / "gone", "new"], "manifest")):
        done = subprocess.run([sys.executable, swap, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_carries_of_a_round_are_those_that_a_build_has(tmp_path: Path, compiled_once: None) -> None:
    build(
        BuildOptions("llama", random=True, config="tiny", target="host", draft="random", weights=False),
        tmp_path / "tiny",
    )
    used = carries_used(tmp_path / "tiny" / "manifest.json", {"prefill", "begin_spec", *ROUND})

    shown = {first.strip("`"): rest for first, *rest in table("speculation.md", "carry")}
    assert set(shown) == set(used)
    for carry, (_, writers, readers) in shown.items():
        uses = used[carry].items()
        assert names(writers) == {program for program, directions in uses if {*directions} - {"in"}}, carry
        # Who first writes a part of it may do so to keep the rest.
        reads, keeps = ({program for program, (first, *_) in uses if first == kind} for kind in ("in", "inout"))
        assert reads <= names(readers) <= reads | keeps, carry


def test_the_rounds_in_the_guide_are_rounds(smollm2_spec: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "speculation.md").read_text()
    (tmp_path / "rounds.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "smollm2").symlink_to(smollm2_spec)
    done = subprocess.run([sys.executable, "rounds.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    shown = text[text.index("```text\ndrafts") :]
    for lines in (done.stdout.splitlines(), shown[: shown.index("```\n\n")].splitlines()[1:]):
        assert len(lines) >= 3
        for drafts, predicted, slots in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            quoted = [re.findall(r"'[^']*'|\"[^\"]*\"", line) for line in (drafts, predicted)]
            right = next((i for i, pair in enumerate(zip(*quoted, strict=False)) if len({*pair}) > 1), 7)
            taken = [slot for slot in map(int, re.findall(r"-?\d+", slots)[:8]) if slot >= 0]
            assert len(taken) == right + 1
            assert f"[{taken[-1] + 1}]" in slots


def test_the_conversation_in_the_guide_is_one(smollm2: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "chat.md").read_text()
    (tmp_path / "talk.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "smollm2").symlink_to(smollm2)
    done = subprocess.run([sys.executable, "talk.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    shown = [line for line in text.splitlines() if line.startswith("The capital of ")]
    assert done.stdout.splitlines() == shown


def test_a_round_wired_wrongly_is_refused_as_shown(smollm2_spec: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "speculation.md").read_text()
    command, shown = re.findall(r"\$ (sed .*?)\n\$ kern verify broken.json\n(.*?)```", text, re.S)[0]
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "smollm2").symlink_to(smollm2_spec)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)

    found = [each.diagnostic for each in verify(tmp_path / "broken.json").diagnostics]
    assert re.findall(r"error\[(\w+)\]: (.*)", shown) == [(each.code, each.message) for each in found]


def exists(name: str) -> bool:
    """Whether there is a module of this name, or a name in one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return module.startswith("kern") and hasattr(importlib.import_module(module), attribute)
    return True


def headings(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def blocks(document: str) -> dict[str, list[str]]:
    """The code blocks of a page by their language, in order."""
    found: dict[str, list[str]] = {}
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / document).read_text(), re.S | re.M):
        found.setdefault(language, []).append(code)
    return found


def output_of(console: str) -> list[str]:
    """The lines of a console block that are output."""
    return [line for line in console.splitlines() if not line.startswith(("$ ", "> "))]


def without_numbers(line: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", line)


def run_program(program: str, folder: Path) -> list[str]:
    """The lines that Python code prints in a folder."""
    (folder / "program.py").write_text(program)
    return printed("$ python program.py", folder)


def printed(shown: str, folder: Path) -> list[str]:
    """What the commands of a console print in a folder."""
    commands = "".join(line[2:] + "\n" for line in shown.splitlines() if line.startswith(("$ ", "> ")))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def carries_used(manifest: Path, programs: set[str]) -> dict[str, dict[str, list[str]]]:
    """The carries that the programs use: carry, program, the directions in which its kernels take it, in order."""
    parsed = read(manifest.read_bytes()).manifest
    assert parsed is not None
    used: dict[str, dict[str, list[str]]] = {}
    for program in programs:
        for dispatch in parsed.programs[program].dispatches:
            for param, arg in zip(parsed.kernels[dispatch.kernel].params, dispatch.args, strict=True):
                if isinstance(arg, BufferArg) and parsed.buffers[arg.buf].class_ == "carry":
                    used.setdefault(arg.buf, {}).setdefault(program, []).append(param.direction or "in")
    return used


def table(document: str, head: str) -> list[list[str]]:
    """The rows of the table whose first column is called `head`."""
    text = (ROOT / "docs" / document).read_text()
    rows = text[text.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def names(cell: str) -> set[str]:
    """What stands as code in a cell."""
    return set(re.findall(r"`(\w+)`", cell))


def generated(folder: Path) -> list[int]:
    with kern.load(folder, capacity=64) as executable:
        generation = Generator(executable, Tokenizer.load(folder)).generate("The capital of France is", max_tokens=24)
        return [token.id for token in generation]
