"""What the commands show on a terminal: help without types that mean nothing, lines broken between words."""

from __future__ import annotations

import re
import sys
from typing import get_args, get_type_hints

import pytest
from typer.models import OptionInfo

from cli.conftest import Kern
from kern.cli.app import app
from kern.cli.terminal import wrapped

COMMANDS = ["verify", "build", "inspect", "run", "chat", "score", "bench", "call", "capture", "mine", "doctor"]
LINE = "programs  prefill (308), decode (305), draft_precompute (7), draft (44), verify (310)"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_a_value_only_where_an_option_takes_one(kern: Kern, command: str) -> None:
    shown = kern(command, "--help").out.splitlines()
    options = [line for line in shown if re.search(r"--\w", line) and "--help" not in line]

    assert options or command == "doctor"
    assert [line for line in options if re.search(r"<(bool|str|int)\b", line)] == []


def test_a_line_is_broken_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    lines = wrapped(LINE, 10).splitlines()

    assert max(map(len, lines)) <= 40
    assert len(lines) > 1
    assert all(line.startswith(" " * 10) and not line.startswith(" " * 11) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(LINE.split())


def test_a_line_is_left_whole_in_a_file_or_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    assert wrapped(LINE, 10) == LINE


def test_an_option_that_its_metavar_repeats_has_its_name_spelled_out() -> None:
    """typer 0.27.0 takes such a metavar for the name: `--DEVICE`."""
    spelled = []
    for command in app.registered_commands:
        assert command.callback is not None
        for name, hint in get_type_hints(command.callback, include_extras=True).items():
            options = [each for each in get_args(hint) if isinstance(each, OptionInfo)]
            for option in options:
                if (option.metavar or "").lower() == name:
                    # In Annotated, typer keeps the first name where a default would be.
                    assert f"--{name}" in (option.default, *(option.param_decls or ())), command.callback.__name__
                    spelled.append(name)
    assert set(spelled) == {"device", "target"}
