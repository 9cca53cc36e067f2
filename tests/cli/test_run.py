"""`kern run`, `score`, `bench`, `inspect`, `build`: results, and one line for each mistake."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cli.conftest import Done, Kern
from kern.cli.prompt import PromptSource
from kern.cli.terminal import binary
from kern.runtime.loading import load
from kern.text.tokenizer import Tokenizer
from support.processes import ONE_FAMILY, started
from support.tokenizers import bytes_tokenizer

IDS = ("--prompt-ids", "1,2,3")


def refused(done: Done, *words: str) -> None:
    assert done.code in (1, 2), done
    assert done.out == ""
    said = [line for line in done.err.splitlines() if line.startswith("kern: error[")]
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
        (["--prompt-ids", "1", "--weights", "/nonexistent"], ["/nonexistent"]),
        (["--prompt-ids", "1", "--weights", "x" * 300], ["K1017"]),
    ],
)
def test_a_users_mistake_is_one_error(kern: Kern, tiny: Path, options: list[str], words: list[str]) -> None:
    refused(kern("run", tiny, *options), *words)


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("run", "--capacity", "0"),
        ("run", "--capacity", "9" * 400),
        ("score", "--capacity", "9" * 400),
        ("bench", "--capacity", "-1"),
        ("inspect", "--capacity", "9" * 400),
        ("run", "--max-tokens", "0"),
        ("run", "--chunk", "0"),
        ("bench", "--chunk", "-3"),
        ("bench", "--steps", "0"),
        ("build", "--seed", "-1"),
    ],
)
def test_a_number_out_of_bounds_is_a_usage_error(kern: Kern, tiny: Path, command: str, option: str, value: str) -> None:
    needed = {"run": IDS, "score": ("--text", "-"), "build": ("-o", "out", "--random")}.get(command, ())
    done = kern(command, "llama" if command == "build" else tiny, *needed, option, value)
    assert (done.code, done.out) == (2, "")
    assert option in done.err
    assert "Traceback" not in done.err


def test_large_numbers_within_bounds_work(kern: Kern, tiny: Path) -> None:
    large = ("--max-tokens", "9" * 400, "--capacity", 24, "--ignore-stop", "--json")
    assert len(kern("run", tiny, *IDS, *large).json["output_ids"]) == 22
    found = kern("bench", tiny, "--steps", "9" * 400, "--capacity", 40, "--json").json
    assert found["decode"]["steps"] == 9


def test_no_more_is_allocated_than_the_model_can_use(kern: Kern, tiny: Path) -> None:
    done = kern("run", tiny, *IDS, "--max-tokens", 2, "--capacity", 2**31)
    assert done.code == 0
    assert "note: the capacity is 4,096 tokens" in done.err
    states = next(line for line in done.err.splitlines() if "states" in line)
    usual = kern("run", tiny, *IDS, "--max-tokens", 2).err
    assert states in usual.splitlines()
    assert "note" not in usual


def test_a_capacity_too_small_to_time_anything_is_an_error(kern: Kern, tiny: Path) -> None:
    for capacity in (16, 31):
        refused(kern("bench", tiny, "--capacity", capacity), f"capacity is {capacity}")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--prompt", "a", "--prompt-ids", "1"], "either --prompt or --prompt-ids"),
        (["--prompt-ids", "1", "--chat"], "--chat"),
        (["--prompt", "a"], "no tokenizer"),
        (["--prompt-ids", "512"], "out of range"),
        (["--prompt-ids", "1,2,3", "--capacity", "2"], "capacity is 2"),
    ],
)
def test_an_invalid_prompt_is_reported_before_loading(
    kern: Kern, tiny: Path, tmp_path: Path, options: list[str], word: str
) -> None:
    refused(kern("run", damaged(tiny, tmp_path, "missing"), *options), word)


def test_a_vocabulary_beyond_the_models_is_refused(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "folder"))
    settings = json.loads((folder / "text.json").read_text())
    (folder / "text.json").write_text(json.dumps(settings | {"vocabulary": 10**9}))
    refused(kern("run", folder, "--prompt-ids", "900000000"), "embedding: 1000000000 rows")


def test_ids_beyond_the_table_are_refused_before_anything_runs(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "folder"))
    text = json.loads((folder / "text.json").read_text()) | {"embedding": "cos_sin", "vocabulary": 4096}
    (folder / "text.json").write_text(json.dumps(text))
    refused(kern("run", folder, "--prompt-ids", "4095"), "together with the embedding, weight cos_sin, but with embedd")


def test_the_load_report_lists_the_graphs(kern: Kern, tiny: Path) -> None:
    assert "graphs  prefill of 512, decode of 1" in kern("run", tiny, *IDS, "--max-tokens", 1).err
    assert "graphs  none" in kern("run", tiny, *IDS, "--max-tokens", 1, "--eager").err


def test_the_load_report_counts_kernels_and_files(kern: Kern, tiny: Path) -> None:
    manifest = json.loads((tiny / "manifest.json").read_text())
    files = {step["cubin"] for kernel in manifest["kernels"].values() for step in kernel["impl"]["steps"]}
    report = kern("run", tiny, *IDS, "--max-tokens", 1).err
    assert f" kernels  {len(manifest['kernels'])} in {len(files)} files" in report


def test_the_summary_counts_what_prefill_took(kern: Kern, tiny: Path) -> None:
    two = kern("run", tiny, *IDS, "--max-tokens", 2, "--ignore-stop").err.splitlines()[-1]
    assert re.fullmatch(r"prefill of 3 tokens in \d+ ms; 2 tokens, [\d.]+ ms each: [\d.]+ tokens/s \(.*\)", two)
    single = kern("run", tiny, "--prompt-ids", "1", "--max-tokens", 1, "--ignore-stop").err.splitlines()[-1]
    assert re.fullmatch(r"prefill of 1 token in \d+ ms; 1 token \(.*\)", single)


def test_a_run_that_fills_the_capacity_says_so(kern: Kern, tiny: Path) -> None:
    most = (*IDS, "--max-tokens", 100, "--capacity", 20, "--ignore-stop")
    assert kern("run", tiny, *most).err.endswith("(ended: the capacity of 20 tokens is full)\n")
    assert kern("run", tiny, *most, "--json").json["stop"] == "length"
    exactly = kern("run", tiny, *IDS, "--max-tokens", 18, "--capacity", 20, "--ignore-stop")
    assert exactly.err.endswith("(ended: --max-tokens 18 reached)\n")


@pytest.mark.parametrize("command", [["run", *IDS], ["bench"]])
@pytest.mark.parametrize("chunk", [513, "9" * 400])
def test_a_chunk_that_the_folder_does_not_take_is_refused(
    kern: Kern, tiny: Path, command: list[str], chunk: int | str
) -> None:
    done = kern(command[0], tiny, *command[1:], "--chunk", chunk)
    refused(done, f"the chunk is {chunk} tokens", "give 1 to 512")
    assert done.code == 2


@pytest.mark.parametrize("more", [["--capacity", 2**31], ["--tune"], ["--max-tokens", 1], ["--ignore-stop"]])
def test_quiet_leaves_the_text_alone(kern: Kern, tiny: Path, more: list[object]) -> None:
    quiet = kern("run", tiny, *IDS, "--max-tokens", 4, *more, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out == kern("run", tiny, *IDS, "--max-tokens", 4, *more).out
    refused(kern("run", tiny, "--prompt-ids", "512", "--quiet"), "out of range")


def test_a_piped_prompt_loses_one_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, wanted in {"ab\n": "ab", "ab\n\n": "ab\n", "ab\r\n": "ab", "ab\r": "ab\r", "\n": "", "ab": "ab"}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        tokenizer = bytes_tokenizer()
        assert PromptSource("-", None, chat=False).resolve(tokenizer) == tokenizer.encode(wanted)
    assert PromptSource("ab\n", None, chat=False).resolve(tokenizer) == tokenizer.encode("ab\n")


def test_the_help_explains_piped_prompts(kern: Kern) -> None:
    assert "without its final newline" in " ".join(kern("run", "--help").out.replace("│", " ").split())


def test_a_chat_may_have_a_system_message(kern: Kern, tiny: Path) -> None:
    template = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
    tokenizer = bytes_tokenizer(template=template)
    source = PromptSource("hi", None, chat=True, system="be brief")
    assert source.resolve(tokenizer) == tokenizer.encode("system=be brief;user=hi;")
    refused(kern("run", tiny, "--prompt", "hi", "--system", "be brief"), "--system", "--chat")
    refused(kern("run", tiny, *IDS, "--system", "be brief"), "--system", "--chat")


def test_tuning_a_device_without_a_choice_is_noted(kern: Kern, tiny: Path) -> None:
    note = "note: nothing to tune: device host"
    assert note in kern("run", tiny, *IDS, "--max-tokens", 1, "--tune").err
    assert note not in kern("run", tiny, *IDS, "--max-tokens", 1).err


def test_a_folder_that_is_not_a_text_model_is_refused(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "folder"))
    (folder / "text.json").unlink()
    for command in (["run", *IDS], ["bench"], ["score", "--text", "-"]):
        refused(kern(command[0], folder, *command[1:]), "is not a text model: it has no text.json", "kern call")


def test_a_folder_without_tokenizer_says_what_each_command_can_do(kern: Kern, tiny: Path) -> None:
    refused(kern("run", tiny, "--prompt", "text"), "--prompt-ids")
    refused(kern("score", tiny, "--text", "-"), "kern.engine.open_model")


def test_the_help_on_a_wrong_weights_file_names_it(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"")
    for command in (["run", *IDS], ["inspect"]):
        done = kern(command[0], tiny, *command[1:], "--weights", tmp_path / "weights")
        refused(done, f"`kern verify {tiny} --weights {tmp_path / 'weights'}`")


def test_a_chat_begins_once(kern: Kern) -> None:
    template = "{{ bos_token }}{{ messages[0].content }}"
    ids = PromptSource("hello", None, chat=True).resolve(bytes_tokenizer(bos=258, template=template))
    assert ids[0] == 258
    assert ids.count(258) == 1


def test_a_folder_without_weights_is_inspected_and_given_weights(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder, weights = damaged(tiny, tmp_path, "missing"), tiny / "weights.safetensors"
    assert "none in the folder" in kern("inspect", folder).out
    assert kern("inspect", folder, "--json").json["memory"]["weights_found"] is False
    assert kern("inspect", folder, "--weights", weights, "--json").json["memory"]["weights_found"] is True
    assert "none in the folder" not in kern("inspect", tiny).out
    refused(kern("inspect", folder, "--weights", tmp_path / "gone"), "K1016")
    assert kern("verify", folder).code == 1
    assert kern("verify", folder, "--weights", weights).code == 0
    assert kern("run", folder, *IDS, "--max-tokens", 1, "--weights", weights).code == 0


def test_an_invalid_folder_is_json_where_json_is_asked_for(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = damaged(tiny, tmp_path, "truncated")
    report = kern("verify", folder, "--json").json
    assert [found["code"] for found in report["diagnostics"]] == ["K1017"]
    for command in (["inspect"], ["run", *IDS], ["bench"]):
        done = kern(command[0], folder, *command[1:], "--json")
        error = done.json["error"]
        assert (done.code, error["code"]) == (1, "invalid-artifact")
        assert {key: value for key, value in done.json.items() if key != "error"} == report
        assert done.err == f"kern: error[invalid-artifact]: {error['message']}\nhelp: {error['help']}\n"


def test_inspect_shows_a_bound_of_zero(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "folder"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["symbols"]["unused_by_shapes"] = {"min": 0, "max": 5}
    dispatch = next(d for d in manifest["programs"]["begin"]["dispatches"] if d["kernel"] == "begin")
    dispatch["args"][-1] = {"sym": "unused_by_shapes"}
    manifest["programs"]["begin"]["symbols"]["unused_by_shapes"] = {"min": 0, "max": 0}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "unused_by_shapes 0…0" in kern("inspect", folder).out


def test_an_invalid_thread_count_is_reported(kern: Kern, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    inspect = [["inspect"]] if change != "missing" else []
    for command in (["run", *IDS], *inspect, ["bench"], ["score", "--text", tmp_path / "text"]):
        refused(kern(command[0], folder, *command[1:]))
    assert kern("verify", folder).code in (1, 2)


def test_inspect_shows_files_and_memory(kern: Kern, tiny: Path) -> None:
    text = kern("inspect", tiny).out
    assert "kernels/matmul.so" in text
    assert "\nsymbols\n  tokens  1…" in text
    assert "\n  seqs    1…64\n" in text
    assert "1 dispatch  (" in text
    memory = kern("inspect", tiny, "--json").json["memory"]
    least, planned, unshared = (memory[f"workspace{which}"] for which in ("_lower_bound", "", "_unshared"))
    assert 0 < least <= planned <= unshared
    with load(tiny, device="host") as executable:
        space = executable.memory_plan.workspace
    assert (least, planned, unshared) == (space.lower_bound, space.size, space.unshared)
    assert f"{binary(planned)}  planned; {binary(unshared)} without sharing, lower bound {binary(least)} (" in text
    assert f"({planned / least:.3f} ×)" in text


def test_inspect_lists_buffers_and_states(kern: Kern, tiny: Path) -> None:
    declared = json.loads((tiny / "manifest.json").read_text())
    found = kern("inspect", tiny, "--json").json
    assert set(found["buffers"]) == set(declared["buffers"])
    assert found["buffers"]["token_ids"] == {"class": "input", "dtype": "i64", "shape": ["tokens"]}
    assert found["buffers"]["block_table"] == {"class": "input", "dtype": "i32", "shape": ["seqs", "pages"]}
    assert found["buffers"]["cu_seqlens_q"]["shape"] == ["seqs + 1"]
    assert found["buffers"]["embedding"] == {"class": "weight", "dtype": "bf16", "shape": [512, 128]}
    for name, buffer in declared["buffers"].items():
        assert found["buffers"][name]["class"] == buffer["class"]
        assert [extent for extent in found["buffers"][name]["shape"] if isinstance(extent, int)] == [
            extent for extent in buffer["shape"] if isinstance(extent, int)
        ]
    assert found["states"] == {"kv": 4096 * declared["states"]["kv"]["bytes_per_token"]}
    text = kern("inspect", tiny).out
    assert "\nbuffers  (" in text
    rows = {
        line.split()[0]: line.split()
        for line in text[text.index("\nbuffers") : text.index("\nprograms")].splitlines()[2:]
        if line
    }
    assert set(rows) == set(declared["buffers"])
    assert rows["block_table"] == ["block_table", "input", "i32", "[seqs,", "pages]"]
    assert "\nstates\n  kv  " in text
    assert "\nmemory for one sequence at capacity 4096\n" in text


def test_bench_prints_json(kern: Kern, tiny: Path) -> None:
    found = kern("bench", tiny, "--steps", 20, "--json").json
    assert set(found) >= {"device", "decode", "prefill", "bytes_per_step", "bandwidth_share"}
    assert found["decode"]["steps"] == 20
    assert found["decode"]["p10"] <= found["decode"]["ms_per_token"] <= found["decode"]["p90"]
    assert found["bytes_per_step"] > 0
    assert "profile" not in found


def test_bench_profiles_a_decode_step(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    found = kern("bench", tiny, "--steps", 8, "--capacity", 64, "--profile", trace, "--json").json
    manifest = json.loads((tiny / "manifest.json").read_text())
    dispatches = [dispatch["kernel"] for dispatch in manifest["programs"]["decode"]["dispatches"]]
    steps = {name: len(kernel["impl"]["steps"]) for name, kernel in manifest["kernels"].items()}
    expected = {name: dispatches.count(name) * steps[name] for name in dispatches}
    assert {time["kernel"]: time["launches"] for time in found["profile"]} == expected
    assert sum(time["share"] for time in found["profile"]) == pytest.approx(1)
    times = [time["us"] for time in found["profile"]]
    assert times == sorted(times, reverse=True)
    launches = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in launches] == [name for name in dispatches for _ in range(steps[name])]
    assert sum(event["dur"] for event in launches) == pytest.approx(sum(times))
    for earlier, later in pairwise(launches):
        assert earlier["ts"] + earlier["dur"] == pytest.approx(later["ts"])
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]

    done = kern("bench", tiny, "--steps", 8, "--capacity", 64, "--profile", trace)
    text = done.out
    assert done.err.endswith(f"the trace is in {trace}\n")
    table = text[text.index("decode step, by kernel") :].splitlines()
    assert len({len(line) for line in table}) == 1
    for name in expected:
        assert name in text


@pytest.mark.parametrize("place", [".", "gone/trace.json", "x" * 300])
def test_a_trace_that_cannot_be_written_is_reported_before_the_measurement(
    kern: Kern, tiny: Path, tmp_path: Path, place: str
) -> None:
    refused(kern("bench", tiny, "--profile", tmp_path / place), "the trace cannot be written to")


def test_doctor_lists_this_machine(kern: Kern) -> None:
    names = {finding["name"]: finding["found"] for finding in kern("doctor", "--json").json}
    assert names["device host"]
    assert "host" in kern("doctor").out
    assert {"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cuda-cccl"} <= set(names)


@pytest.mark.parametrize(
    ("name", "value", "missing"),
    [
        ("CC", '"gcc', "C compiler"),
        ("CC", "/nonexistent/cc", "C compiler"),
        ("CC", "{not_executable}", "C compiler"),
        ("CC", "{no_program}", "C compiler"),
        ("CC", "false", "C compiler"),
        ("KERN_THREADS", "x", "device host"),
    ],
)
def test_doctor_finds_what_is_wrong_with_the_environment(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, missing: str
) -> None:
    for file, mode in (("not_executable", 0o644), ("no_program", 0o755)):
        (tmp_path / file).write_bytes(b"\x7fno program")
        (tmp_path / file).chmod(mode)
    paths = {file: str(tmp_path / file) for file in ("not_executable", "no_program")}
    monkeypatch.setenv(name, value.format(**paths) if "{" in value else value)
    done = kern("doctor", "--json")
    assert done.code == 0
    found = {finding["name"]: finding for finding in done.json}
    assert found[missing]["found"] is None
    assert name in found[missing]["help"]
    assert found["python"]["found"]


def test_an_empty_cc_is_the_usual_compiler(kern: Kern, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "")
    found = {finding["name"]: finding["found"] for finding in kern("doctor", "--json").json}
    monkeypatch.delenv("CC")
    assert found == {finding["name"]: finding["found"] for finding in kern("doctor", "--json").json}


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
        (["llama", "--checkpoint", "x" * 300], "does not exist"),
        (["llama", "--checkpoint", "/nonexistent", "--seed", "3"], "seed 3 is for random weights"),
        (["smollm2", "--checkpoint", "/nonexistent"], "does not exist"),
        (["llama", "--random", "--config", "tiny", "--target", "sm_1"], "sm_1"),
        (["llama", "--random", "--config", "tiny", "--target", "sm_999"], "sm_999"),
    ],
)
def test_a_build_that_fails_is_one_error(kern: Kern, tmp_path: Path, arguments: list[str], word: str) -> None:
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
    refused(kern("run", smollm2, "--prompt", "caf\udce9"), "an unpaired surrogate at index 3")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    refused(kern("run", smollm2, "--prompt", "-"), "UTF-8")


def test_an_endless_text_or_a_closed_stdin_is_one_error(
    kern: Kern, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(kern("score", smollm2, "--text", "/dev/zero"), "/dev/zero", "bytes")
    refused(kern("score", smollm2, "--text", "/nonexistent"), "/nonexistent")
    monkeypatch.setattr(sys, "stdin", None)
    refused(kern("run", smollm2, "--prompt", "-"), "stdin")


def test_an_existing_trace_survives_a_failing_run(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("precious")
    refused(kern("bench", tiny, "--device", "cuda:99", "--profile", tmp_path / "trace.json"))
    assert (tmp_path / "trace.json").read_text() == "precious"
    refused(kern("bench", tiny, "--profile", "/dev/null"), "/dev/null")
    refused(kern("bench", tiny, "--profile", tmp_path), str(tmp_path))
    refused(kern("bench", tiny, "--profile", tmp_path / "absent" / "trace.json"), "absent")


def process(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kern", *map(str, arguments)]


@ONE_FAMILY
def test_an_interrupt_ends_cleanly_with_130(tiny: Path) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100000, "--capacity", 100000, "--ignore-stop")
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.read(8)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err


@ONE_FAMILY
@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.4, 0.6])
def test_an_interrupt_while_starting_leaves_no_traceback(tiny: Path, seconds: float) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100000, "--capacity", 100000, "--ignore-stop")
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(seconds)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode in (130, -signal.SIGINT)  # the latter before the interpreter has come to kern
    assert "kern/" not in err


@ONE_FAMILY
def test_a_full_device_is_one_error(tiny: Path) -> None:
    for command in (["verify", tiny], ["inspect", tiny], ["schema"], ["run", tiny, *IDS, "--max-tokens", 2]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(process(*command), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "cannot be written" in done.stderr


def test_an_error_is_reported_though_its_json_cannot_be_written(tmp_path: Path) -> None:
    command = process("verify", tmp_path / "none", "--json")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kern: error[not-an-artifact]: ")
    assert len(done.stderr.splitlines()) == 2


@ONE_FAMILY
@pytest.mark.parametrize(("closed", "out"), [(">&-", ""), ("2>&-", "1"), (">&- 2>&-", "")])
def test_a_closed_output_gives_no_traceback(tiny: Path, closed: str, out: str) -> None:
    command = process("run", tiny, "--prompt-ids", "1,2,3", "--max-tokens", 1)
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert len(done.stdout.split()) == len(out)


@ONE_FAMILY
def test_a_reader_that_closes_the_pipe_gives_no_traceback(tiny: Path) -> None:
    command = process("run", tiny, *IDS, "--max-tokens", 100, "--ignore-stop")
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
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
    for command in ("build", "verify", "explain", "schema", "doctor", "inspect", "run", "score", "bench", "call"):
        assert command in listed
        text = kern(command, "--help").out
        assert f"kern {command}" in text.split("Usage", 1)[1]
        assert "Example" in text


def test_the_version_is_printed(kern: Kern) -> None:
    import kern as package

    assert kern("--version").out == f"kern {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        ([], "Missing command", "kern"),
        (["fly"], "No such command 'fly'", "kern"),
        (["run"], "Missing argument 'DIR'", "kern run"),
        (["run", "x", "--fly"], "No such option: --fly", "kern run"),
    ],
)
def test_usage_errors_exit_2(kern: Kern, arguments: list[str], message: str, command: str) -> None:
    done = kern(*arguments)
    assert done.code == 2
    assert done.err == f"kern: error[usage]: {message}\nhelp: see `{command} --help`\n"


def test_an_error_is_json_too_where_json_is_asked_for(kern: Kern, tmp_path: Path) -> None:
    for arguments, code in (
        ([tmp_path / "none", *IDS], "folder-unreadable"),
        ([tmp_path, *IDS, "--max-tokens", "0"], "usage"),
        ([tmp_path, "--fly"], "usage"),
    ):
        done = kern("run", *arguments, "--json")
        error = done.json["error"]
        assert (done.code, error["code"]) == (2, code)
        assert done.err == f"kern: error[{code}]: {error['message']}\nhelp: {error['help']}\n"


COMMANDS = [("run", *IDS), ("score", "--text", "README.md"), ("bench", "--steps", 1, "--decode-only")]


@pytest.fixture
def any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder has a tokenizer, of which any text is three tokens."""
    monkeypatch.setattr(Tokenizer, "has_vocabulary", True)
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: [1, 2, 3])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_folder_is_opened_once(kern: Kern, tiny: Path, any_text: None, command: tuple[object, ...]) -> None:
    opened: list[str] | None = []

    def note(event: str, args: tuple[object, ...]) -> None:
        if opened is not None and event == "open" and str(args[0]).startswith(str(tiny)):
            opened.append(str(args[0]))

    sys.addaudithook(note)
    done = kern(command[0], tiny, *command[1:])
    found, opened = opened, None  # a hook stays for good
    assert (done.code, found) == (0, [str(tiny)])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_replaced_while_it_is_open_runs_as_it_was(
    kern: Kern, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_text: None, command: tuple[object, ...]
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "model")
    read = Tokenizer.load.__func__  # type: ignore[attr-defined]

    def read_and_replace(cls: type[Tokenizer], opened: object) -> object:
        tokenizer = read(cls, opened)
        folder.rename(tmp_path / "old")
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
        return tokenizer

    monkeypatch.setattr(Tokenizer, "load", classmethod(read_and_replace))
    done = kern(command[0], folder, *command[1:], "--json")
    assert done.code == 0, done
    if command[0] == "run":
        monkeypatch.undo()
        assert done.json["output_ids"] == kern(command[0], tiny, *command[1:], "--json").json["output_ids"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(process("--version"), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kern ")
    done = subprocess.run(process("fly"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "kern: error[usage]: No such command 'fly'\nhelp: see `kern --help`\n"
