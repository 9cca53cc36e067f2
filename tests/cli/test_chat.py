"""`kern chat`, and `kern run` with stop strings: through a pipe, and on a terminal."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cli.conftest import Done, Kern
from kern.engine.generation import Generation, Token
from support.processes import started
from support.talking_toy import ids_of, text_of, write_talker
from support.toy_speculation import continuation

Talk = Callable[..., Done]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("chat") / "toy")


@pytest.fixture
def talk(kern: Kern, toy: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Give lines to `kern chat`."""

    def call(said: bytes, *options: object) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said)))
        return kern("chat", toy, "--capacity", 512, *options)

    return call


def answers(lines: list[str], count: int, system: str = "") -> list[str]:
    """What the toy answers, `count` characters a turn."""
    said, found = f"s:{system}|" if system else "", []
    for line in lines:
        said += f"u:{line}|a:"
        found.append(text_of(continuation(ids_of(said), count)))
        said += found[-1] + "|"
    return found


@pytest.mark.parametrize("spec", [[], ["--spec"]])
def test_each_line_is_answered(talk: Talk, spec: list[str]) -> None:
    done = talk(b"hello\n\nand then?\r\nwhy", "--max-tokens", 9, *spec)
    said = answers(["hello", "and then?", "why"], 9)

    assert (done.code, done.out) == (0, "".join(f"{answer}\n" for answer in said))
    times = [line for line in done.err.splitlines() if line.startswith("prefill of ")]
    assert [line.partition(" in ")[0] for line in times] == [
        f"prefill of {9 if spec else 10} tokens",
        f"prefill of {len('|u:and then?|a:') + 1} tokens after {18 if not spec else 17} reused",
        f"prefill of {len('|u:why|a:') + 1} tokens after {42 if not spec else 41} reused",
    ]
    assert done.err.count("(ended: --max-tokens 9 reached)") == 3


def test_quiet_leaves_the_answers_alone(talk: Talk) -> None:
    done = talk(b"hello\n", "--max-tokens", 5, "--system", "be brief", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert done.out == answers(["hello"], 5, "be brief")[0] + "\n"


def test_an_answer_ends_before_a_stop_string(talk: Talk) -> None:
    whole = answers(["hello"], 9)[0]
    done = talk(b"hello\n", "--max-tokens", 9, "--stop", whole[4:7], "--stop", "never")
    assert done.out == whole[:4] + "\n"
    assert "7 tokens, " in done.err
    assert done.err.endswith("(ended by a stop string)\n")


def test_empty_lines_are_not_answered(talk: Talk) -> None:
    assert talk(b"").out == talk(b"\n  \n").out == ""


def test_a_full_capacity_is_one_error(talk: Talk) -> None:
    done = talk(b"hello\nmore\nmore\n", "--capacity", 24, "--max-tokens", 100)
    assert done.code == 2
    assert done.out == answers(["hello"], 15)[0] + "\n"
    assert done.err.count("(ended: the capacity of 24 tokens is full)") == 1
    assert done.err.splitlines()[-2:] == [
        "kern: error[bad-prompt]: the conversation has 35 tokens; the capacity is 24",
        "help: shorten it, or load with a larger capacity",
    ]


@pytest.mark.parametrize(
    ("said", "options", "says"),
    [
        (b"\xff\n", [], "stdin is not UTF-8 at byte 0 of a line"),
        (b"hello\n", ["--stop", ""], "a stop string is empty"),
        (b"hello\n", ["--capacity", 0], "--capacity"),
        (b"hello\n", ["--max-tokens", 0], "--max-tokens"),
    ],
)
def test_a_users_mistake_is_one_error(talk: Talk, said: bytes, options: list[object], says: str) -> None:
    done = talk(said, *options)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "has no chat template\nhelp: use `kern run` without --chat"),
        ("{{ raise_exception('no') }}", "refuses"),
        ("{% break %}", "fails: 'break'"),
    ],
)
def test_a_template_that_fails_is_reported_before_loading(
    kern: Kern, tmp_path: Path, template: str | None, says: str
) -> None:
    folder = write_talker(tmp_path / "toy", template=template)
    (folder / "weights.safetensors").unlink()
    for command in (["chat", folder], ["run", folder, "--chat", "--prompt", "hi"]):
        done = kern(*command)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
        assert len([line for line in done.err.splitlines() if line.startswith("kern: error[")]) == 1


def test_a_folder_without_a_tokenizer_cannot_chat(kern: Kern, tiny: Path) -> None:
    done = kern("chat", tiny)
    assert (done.code, done.out) == (2, "")
    assert "no tokenizer" in done.err


def test_an_interrupt_ends_an_answer_and_not_the_conversation(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    following, answers_begun = Generation.__next__, set[int]()

    def interrupted(answer: Generation) -> Token:
        if len(answer.output_ids) == 3 and not answers_begun:
            answers_begun.add(id(answer))
            os.kill(os.getpid(), signal.SIGINT)
        return following(answer)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    done = talk(b"hello\nand then?\n", "--max-tokens", 9)
    first = answers(["hello"], 3)[0]
    second = text_of(continuation(ids_of(f"u:hello|a:{first}|u:and then?|a:"), 9))

    assert (done.code, done.out) == (0, f"{first}\n{second}\n")
    assert done.err.count("(interrupted)") == 1
    assert "after 12 reused" in done.err


@pytest.mark.parametrize("key", [b"\x03", b"\x04"])
def test_a_key_ends_the_conversation_on_a_terminal(toy: Path, key: bytes) -> None:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "kern", "chat", str(toy), "--max-tokens", "5", "--capacity", "64"]
    with started(
        command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = until(master, b"> ")
        os.write(master, b"hello\n")
        shown += until(master, b"\n> ")
        assert press(process, master, key) == 0
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    os.close(master)
    assert answers(["hello"], 5)[0] in shown.decode().replace("\r\n", "\n")


def press(process: subprocess.Popen[bytes], master: int, key: bytes) -> int:
    """Press a key that ends the process; its exit status.

    Python does not see an interrupt that comes after the prompt and before it waits for input: it is pressed again.
    """
    for _ in range(12):
        os.write(master, key)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(5)
    raise AssertionError(f"{key!r} did not end the process")


def until(master: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(master, 4096)
    return shown


def test_run_ends_before_a_stop_string_and_says_which_kind(kern: Kern, toy: Path) -> None:
    prompt = ("--prompt", "hello", "--max-tokens", 9, "--capacity", 64)
    whole = text_of(continuation(ids_of("hello"), 9))
    for more in ([], ["--spec"], ["--ignore-stop"]):
        found = kern("run", toy, *prompt, "--stop", whole[4:6], *more, "--json").json
        assert (found["text"], found["stop"]) == (whole[:4], "stop_text")
        assert found["output_ids"] == ids_of(whole[:6])
        assert kern("run", toy, *prompt, "--stop", whole[4:6], *more, "--quiet").out == whole[:4] + "\n"
    assert kern("run", toy, *prompt, "--stop", "never", "--json").json["stop"] == "length"


def test_an_invalid_stop_string_is_reported_before_loading(kern: Kern, tiny: Path, tmp_path: Path) -> None:
    folder = write_talker(tmp_path / "toy")
    (folder / "weights.safetensors").unlink()
    for path, stop, says in ((folder, "", "a stop string is empty"), (tiny, "x", "no text for a stop string")):
        done = kern("run", path, "--prompt-ids", "1", "--stop", stop)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
