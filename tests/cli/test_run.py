"""`kern run`, `score`, `bench`, `inspect`, `build`: results, and one line for each mistake."""

from __future__ import annotations

import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Done, Kern

IDS = ("--prompt-ids", "1,2,3")


def refused(done: Done, *words: str) -> None:
    assert done.code in (1, 2), done
    assert done.out == ""
    said = [line for line in done.err.splitlines() if line.startswith("kern: ")]
    assert len(said) == 1, done.err
    for word in words:
        assert word in done.err
    assert "Traceback" not in done.err


def test_run_prints_json(kern: Kern, tiny: Path) -> None:
    done = kern("run", tiny, *IDS, "--max-tokens", 5, "--ignore-stop", "--json")
    assert done.code == 0
    assert done.json["prompt_ids"] == [1, 2, 3]
    assert len(done.json["output_ids"]) == 5
    assert done.json["stop"] == "length"
    assert set(done.json) == {"prompt_ids", "output_ids", "text", "stop", "timing"}
    assert set(done.json["timing"]) == {"load_s", "prefill_s", "decode_s", "ms_per_token"}


def test_eager_chunked_and_checked_runs_agree(kern: Kern, tiny: Path) -> None:
    prompt = ("--prompt-ids", ",".join(map(str, range(1, 38))), "--max-tokens", 8, "--ignore-stop", "--json")
    plain = kern("run", tiny, *prompt).json["output_ids"]
    for more in (["--eager"], ["--chunk", 5], ["--check"], ["--capacity", 44]):
        assert kern("run", tiny, *prompt, *more).json["output_ids"] == plain, more


def test_run_streams_and_reports_on_stderr(kern: Kern, tiny: Path) -> None:
    done = kern("run", tiny, *IDS, "--max-tokens", 4, "--ignore-stop")
    assert len(done.out.split()) == 4
    assert "symbols" in done.err
    assert "tokens/s" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["--prompt"]),
        (["--prompt", "a", "--prompt-ids", "1"], ["--prompt"]),
        (["--prompt-ids", ""], ["empty"]),
        (["--prompt-ids", "1,x"], ["1,x"]),
        (["--prompt-ids", "99999999"], ["out of range"]),
        (["--prompt-ids", "-1"], ["out of range"]),
        (["--prompt-ids", ",".join(["1"] * 40), "--capacity", "20"], ["40", "20"]),
        (["--prompt", "text"], ["tokenizer"]),
        (["--prompt-ids", "1", "--chat"], ["--chat"]),
        (["--prompt-ids", "1", "--device", "tpu"], ["tpu"]),
        (["--prompt-ids", "1", "--device", "cuda:99"], ["cuda"]),
        (["--prompt-ids", "1", "--capacity", "0"], ["capacity"]),
        (["--prompt-ids", "1", "--max-tokens", "0"], ["max_tokens"]),
        (["--prompt-ids", "1", "--chunk", "0"], ["chunk"]),
        (["--prompt-ids", "1", "--weights", "/nonexistent"], ["/nonexistent"]),
        (["--prompt-ids", "1", "--capacity", "99999999999"], ["free"]),
    ],
)
def test_a_users_mistake_is_one_line(kern: Kern, tiny: Path, options: list[str], words: list[str]) -> None:
    refused(kern("run", tiny, *options), *words)


def test_junk_in_the_thread_count_is_said(kern: Kern, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERN_THREADS", "many")
    refused(kern("run", tiny, *IDS), "KERN_THREADS")


def damaged(tiny: Path, tmp_path: Path, change: str) -> Path:
    folder = Path(shutil.copytree(tiny, tmp_path / "folder"))
    weights = folder / "weights.safetensors"
    if change == "missing":
        weights.unlink()
    elif change == "truncated":
        os.truncate(weights, weights.stat().st_size - 1000)
    elif change == "empty":
        weights.write_bytes(b"")
    elif change == "other dtype":
        data = weights.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        header = data[8 : 8 + size].replace(b'"BF16"', b'"F16" ', 1)
        weights.write_bytes(data[:8] + header + data[8 + size :])
    elif change == "link":
        (tmp_path / "elsewhere").write_bytes(weights.read_bytes())
        weights.unlink()
        weights.symlink_to(tmp_path / "elsewhere")
    elif change == "no manifest":
        (folder / "manifest.json").unlink()
    return folder


@pytest.mark.parametrize("change", ["missing", "truncated", "empty", "other dtype", "link", "no manifest"])
def test_a_damaged_folder_is_refused_by_every_command(kern: Kern, tiny: Path, tmp_path: Path, change: str) -> None:
    folder = damaged(tiny, tmp_path, change)
    (tmp_path / "text").write_text("some text")
    for command in (["run", *IDS], ["inspect"], ["bench"], ["score", "--text", tmp_path / "text"]):
        refused(kern(command[0], folder, *command[1:]))
    assert kern("verify", folder).code in (1, 2)


def test_inspect_shows_files_and_memory(kern: Kern, tiny: Path) -> None:
    text = kern("inspect", tiny).out
    assert "kernels/matmul.so" in text
    assert "lower bound" in text
    memory = kern("inspect", tiny, "--json").json["memory"]
    assert memory["workspace_lower_bound"] <= memory["workspace"] <= memory["workspace_unshared"]


def test_bench_prints_json(kern: Kern, tiny: Path) -> None:
    found = kern("bench", tiny, "--steps", 20, "--json").json
    assert set(found) >= {"device", "decode", "prefill", "bytes_per_step", "bandwidth_share"}
    assert found["decode"]["steps"] == 20
    assert found["decode"]["p10"] <= found["decode"]["ms_per_token"] <= found["decode"]["p90"]
    assert found["bytes_per_step"] > 0


def test_doctor_lists_this_machine(kern: Kern) -> None:
    names = {finding["name"]: finding["found"] for finding in kern("doctor", "--json").json}
    assert names["device host"]
    assert "host" in kern("doctor").out


def test_build_asks_before_replacing(kern: Kern, tmp_path: Path, compiled_once: None) -> None:
    output = tmp_path / "out"
    arguments = ["build", "llama", "--random", "--config", "tiny", "--target", "host", "-o", output]
    assert kern(*arguments).code == 0
    before = (output / "manifest.json").stat().st_mtime_ns
    refused(kern(*arguments), "--force")
    assert (output / "manifest.json").stat().st_mtime_ns == before
    assert kern(*arguments, "--force").code == 0
    assert kern("verify", output).code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["gpt2"], "gpt2"),
        (["llama"], "weights"),
        (["llama", "--random"], "--config"),
        (["llama", "--random", "--config", "huge"], "huge"),
        (["llama", "--checkpoint", "/nonexistent"], "/nonexistent"),
        (["llama", "--random", "--config", "tiny", "--target", "sm_1"], "sm_1"),
    ],
)
def test_a_build_that_cannot_be_is_one_line(kern: Kern, tmp_path: Path, arguments: list[str], word: str) -> None:
    refused(kern("build", *arguments, "-o", tmp_path / "out"), word)
    assert list(tmp_path.iterdir()) == []


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    command = process("build", "llama", "--random", "--config", "tiny", "--target", "host", "-o", tmp_path / "out")
    environment = {**os.environ, "CC": "/nonexistent/cc"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    refused(Done(done.returncode, done.stdout, done.stderr), "/nonexistent/cc", "install")
    assert list(tmp_path.iterdir()) == []


def test_text_comes_from_the_command_line_from_stdin_or_a_template(
    kern: Kern, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "The capital of France is"
    shown = kern("run", smollm2, "--prompt", prompt, "--max-tokens", 6)
    assert shown.out == " Paris.\n\nThe answer\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode())))
    assert kern("run", smollm2, "--prompt", "-", "--max-tokens", 6).out == shown.out
    chat = kern("run", smollm2, "--prompt", "What is 2 + 2?", "--chat", "--max-tokens", 3, "--json").json
    assert chat["prompt_ids"][0] == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    refused(kern("run", smollm2, "--prompt", "-"), "UTF-8")


def process(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kern.cli", *map(str, arguments)]


def test_an_interrupt_ends_cleanly_with_130(tiny: Path) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100000, "--capacity", 100000, "--ignore-stop")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.read(8)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err


@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.4, 0.6])
def test_an_interrupt_while_starting_leaves_no_traceback(tiny: Path, seconds: float) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100000, "--capacity", 100000, "--ignore-stop")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(seconds)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT)  # the latter before the interpreter has come to kern
    assert "kern/" not in err


def test_a_full_device_is_one_line(tiny: Path) -> None:
    for command in (["verify", tiny], ["inspect", tiny], ["schema"], ["run", tiny, *IDS, "--max-tokens", 2]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(process(*command), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "cannot be written" in done.stderr


def test_a_reader_that_goes_away_is_no_traceback(tiny: Path) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100, "--ignore-stop")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.read(1)
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read()
    assert "Traceback" not in err


def test_help_imports_neither_pydantic_nor_numpy() -> None:
    code = (
        "import sys, kern.cli; sys.argv = ['kern', '--help']\n"
        "try: kern.cli.main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pydantic', 'numpy', 'torch') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_every_command_has_help_with_an_example(kern: Kern) -> None:
    listed = kern("--help").out
    for command in ("build", "verify", "explain", "schema", "doctor", "inspect", "run", "score", "bench"):
        assert command in listed
        text = kern(command, "--help").out
        assert f"kern {command}" in text.split("Usage", 1)[1]
        assert "Example" in text


def test_the_version_is_printed(kern: Kern) -> None:
    import kern as package

    assert kern("--version").out == f"kern {package.__version__}\n"


def test_usage_errors_exit_2(kern: Kern) -> None:
    for arguments in (["fly"], ["run"], ["run", "x", "--max-tokens", "many"]):
        done = kern(*arguments)
        assert done.code == 2
        assert "Traceback" not in done.err
