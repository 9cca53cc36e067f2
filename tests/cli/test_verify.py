"""`kern verify`, `explain`, `schema`: what a user reads."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from cli.conftest import Kern
from kern.cli.explain import all_codes, all_errors
from kern.manifest.diagnostics import Example
from kern.manifest.errors import KernError
from kern.verifier.example import BASE
from support.edited_example import edited

SAMPLE = Path(__file__).parents[1] / "samples" / "original-form.json"


def written(folder: Path, text: str) -> Path:
    path = folder / "manifest.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def test_a_valid_manifest_is_ok(kern: Kern) -> None:
    done = kern("verify", SAMPLE)
    assert (done.code, done.out, done.err) == (0, f"{SAMPLE}: ok\n", "")


def test_a_valid_folder_is_ok(kern: Kern, tiny: Path) -> None:
    assert kern("verify", tiny, "--target", "host").code == 0


def test_a_diagnostic_is_shown_as_compilers_do(kern: Kern, tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE.read_text().replace('"buf": "qkv"', '"buf": "qvk"', 1))
    done = kern("verify", path)
    assert done.code == 1
    assert done.out == ""
    lines = done.err.splitlines()
    place = next(i for i, line in enumerate(SAMPLE.read_text().splitlines()) if '"buf": "qkv"' in line) + 1
    assert "qvk" in lines[0]
    assert lines[0].startswith("error[K07")
    assert f"{path}:{place}:" in lines[1]
    assert lines[3] == f'{place} |        "buf": "qvk"'
    assert lines[4].strip(" |") == "^" * len('"qvk"')
    assert lines[4].index("^") == lines[3].index('"qvk"')
    assert lines[5].lstrip().startswith("= help: ")
    assert lines[-1] == "1 error"


def test_all_diagnostics_are_in_the_json(kern: Kern, tmp_path: Path) -> None:
    text = SAMPLE.read_text().replace('"buf": "qkv"', '"buf": "qvk"', 1).replace('"max": 64', '"max": 0', 1)
    done = kern("verify", written(tmp_path, text), "--json")
    assert done.code == 1
    assert done.json["ok"] is False
    assert len(done.json["diagnostics"]) >= 2
    for found in done.json["diagnostics"]:
        assert set(found) == {"code", "severity", "pointer", "line", "column", "message", "help"}
    assert kern("verify", SAMPLE, "--json").json == {"ok": True, "path": str(SAMPLE), "diagnostics": []}


@pytest.mark.parametrize("evil", ["\x1b[31mred", "bell\x07", "\u202eright-to-left", "line\u2028break"])
def test_what_a_terminal_would_obey_is_shown_instead(kern: Kern, tmp_path: Path, evil: str) -> None:
    text = SAMPLE.read_text().replace('"buf": "qkv"', f'"buf": {json.dumps(evil, ensure_ascii=False)}', 1)
    text = text.replace('"tokens": {', f"{json.dumps(evil)}: {{", 1)
    done = kern("verify", written(tmp_path, text))
    assert done.code == 1
    assert evil not in done.err
    assert not any(ord(c) < 32 and c != "\n" for c in done.err)


def test_a_long_line_is_cut_around_the_place(kern: Kern, tmp_path: Path) -> None:
    text = json.dumps(json.loads(SAMPLE.read_text().replace('"buf": "qkv"', '"buf": "qvk"', 1)))
    done = kern("verify", written(tmp_path, text))
    excerpt, marks = done.err.splitlines()[3:5]
    assert len(excerpt) <= 120
    assert excerpt[marks.index("^") : marks.rindex("^") + 1] == '"qvk"'


def test_a_long_path_with_a_target_gives_no_traceback(kern: Kern, tmp_path: Path) -> None:
    done = kern("verify", tmp_path / ("x" * 300), "--target", "host")
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("variable", ["COLUMNS", "TERMINAL_WIDTH"])
@pytest.mark.parametrize("width", ["0", "wide", "99999999"])
def test_an_implausible_terminal_width_hides_no_error(tmp_path: Path, variable: str, width: str) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    command = [sys.executable, "-m", "kern"]
    for args, status, text in (
        (["verify", str(tmp_path)], 1, "error[K0104]"),
        (["verify", "-h"], 0, "Check a manifest"),
    ):
        done = subprocess.run(
            [*command, *args],
            env=os.environ | {variable: width},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == status
        assert text in done.stdout + done.stderr
        assert len(done.stdout) < 10_000


def test_no_line_ends_in_blanks(kern: Kern, tmp_path: Path) -> None:
    done = kern("verify", written(tmp_path, "[]"))
    assert done.code == 1
    assert all(line == line.rstrip() for line in done.err.splitlines())


def test_unreadable_paths_are_a_usage_error(kern: Kern, tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path, tmp_path / ("x" * 300)):
        done = kern("verify", path)
        assert done.code == 2, path
        assert done.err.startswith("kern: error[")


def test_options_about_files_are_noted_as_unused_for_a_bare_manifest(kern: Kern) -> None:
    for option, value in (("--target", "sm_90"), ("--weights", "x" * 300)):
        done = kern("verify", SAMPLE, option, value)
        assert done.code == 0
        assert f"{option}" in done.err


def test_each_code_is_explained(kern: Kern) -> None:
    overview = kern("explain").out
    for code in all_codes().values():
        assert code.id in overview
        text = kern("explain", code.id.lower()).out
        assert code.title in text
        assert "Refused" in text
        assert "Accepted" in text
        assert ("docs/diagnostics.md" in text) is isinstance(code.example, Example)


def test_each_error_is_explained(kern: Kern) -> None:
    overview = kern("explain").out
    for error in all_errors():
        assert re.search(rf"^  {error.code} +{re.escape(error.__doc__ or '')}$", overview, re.M)
    done = kern("explain", "out-of-memory")
    assert done.out == "### out-of-memory\n\nThe device has less free memory than is needed.\n\nExit status: 1\n\n"


def test_the_errors_are_the_same_without_the_extras() -> None:
    without = "import sys; sys.modules.update(dict.fromkeys(['cuda', 'gguf'])); sys.argv = ['kern', 'explain']\n"
    code = without + "from kern.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"  {error.code} " in done.stdout for error in all_errors())


def test_codes_of_errors_are_unique_and_unlike_those_of_diagnostics() -> None:
    codes = [error.code for error in all_errors()]
    assert len({*codes}) == len(codes) > 50
    for code in codes:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)


def test_every_error_that_is_raised_has_a_code_and_says_what_to_do() -> None:
    all_errors()  # imports everything
    raised = 0
    for name, module in sys.modules.copy().items():
        tree = ast.parse(Path(str(module.__file__)).read_text()) if name.startswith("kern.") else ast.Module([], [])
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            error = getattr(module, call.func.id, None) if isinstance(call.func, ast.Name) else None
            if isinstance(error, type) and issubclass(error, KernError) and "__init__" not in vars(error):
                assert error.code
                assert error.help or len(call.args) == 2 or isinstance(call.args[0], ast.Starred), ast.unparse(call)
                raised += 1
    assert raised > 300


@pytest.mark.parametrize(("given", "close"), [("K9999", None), ("out-of-memry", "out-of-memory")])
def test_an_unknown_code_is_a_usage_error(kern: Kern, given: str, close: str | None) -> None:
    done = kern("explain", given)
    assert done.code == 2
    assert done.err.startswith(f"kern: error[unknown-code]: unknown code '{given}'\nhelp: ")
    assert (f"did you mean {close}? " in done.err) is (close is not None)


def test_the_schema_is_printed(kern: Kern) -> None:
    schema = kern("schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(edited({})), schema)
    assert json.loads(BASE) == json.loads(edited({}))


def test_a_changed_kernel_file_is_refused(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "copy"))
    module = folder / "kernels" / "norms.so"
    data = bytearray(module.read_bytes())
    data[len(data) // 2] ^= 1
    module.write_bytes(data)
    for command in (["verify"], ["run", "--prompt-ids", "1"]):
        done = kern(command[0], folder, *command[1:])
        assert done.code == 1
        assert "K1002" in done.err
        assert done.out == ""
