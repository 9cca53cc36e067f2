"""The user's cache is where the XDG Base Directory Specification has it, for all that keep something there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kern.capture import find_toolkit, recorder_library
from kern.device.cuda.algorithms import AlgorithmCache
from kern.models.fetch import SMOLLM2, fetch
from kern.user_cache import NoCacheFolder, user_cache


def test_the_variable_names_the_folder_that_holds_kerns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert user_cache() == tmp_path / "kern"


@pytest.mark.parametrize("value", [None, "", "cache", "./cache", "~/cache"])
def test_without_an_absolute_path_it_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)

    assert user_cache() == Path("/home/someone/.cache/kern")


@pytest.mark.parametrize(
    "use",
    [
        lambda: fetch(SMOLLM2, lambda done, total: None),
        lambda: AlgorithmCache("a GPU", 1),
        lambda: recorder_library(find_toolkit(), ["cc"]),
    ],
    ids=["fetched", "measured", "compiled"],
)
def test_without_a_home_the_variable_is_asked_for(monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", homeless)

    with pytest.raises(NoCacheFolder, match="no home folder") as caught:
        use()

    assert "absolute path, in XDG_CACHE_HOME" in caught.value.help
    assert caught.value.exit_code == 2
