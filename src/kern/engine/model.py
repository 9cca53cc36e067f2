"""A text model: its folder opened once, its tokenizer, and its executable on a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kern.artifact.folder import ArtifactFolder, open_folder
from kern.contracts.text import TextSettings
from kern.engine.generator import Generator
from kern.engine.scoring import Score, score
from kern.engine.sequence import Ids
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.runtime.memory.allocation import Progress
from kern.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextModel:
    """An executable and the tokenizer of the same folder. Made by `open_model`; closes with its context."""

    executable: Executable
    tokenizer: Tokenizer

    @property
    def settings(self) -> TextSettings:
        """text.json of the folder."""
        return self.tokenizer.settings

    def generator(self, *, chunk: int | None = None, eager: bool = False, spec: bool = False) -> Generator:
        """A generator of this model; see `Generator`. Raises ContractError and PromptError."""
        return Generator(self.executable, self.tokenizer, chunk=chunk, eager=eager, spec=spec)

    def score(self, text: str | Ids, *, progress: Callable[[int, int], None] | None = None) -> Score:
        """The likelihood of a text, or of token ids; see `kern.engine.score`. Raises NoTokenizer and NotText too."""
        ids = self.tokenizer.encode(text) if isinstance(text, str) else text
        return score(self.executable, self.settings, ids, progress=progress)

    def __enter__(self) -> TextModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back everything that was loaded. A second call does nothing."""
        self.executable.close()


def open_model(
    path: str | Path | ArtifactFolder,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "auto",
    capacity: int = 4096,
    weights: str | Path | None = None,
    check: bool = False,
    tune: bool = False,
    progress: Progress | None = None,
) -> TextModel:
    """Open the folder at `path` and load its text model; an open folder is read as it is, and stays open.

    `tokenizer` is that of the open folder, where it has been read already. `capacity` counts tokens of a sequence; the
    model's positions, where these are fewer. The other options are those of `kern.load`. Raises what `Tokenizer.load`
    and `kern.load` raise.
    """
    with nullcontext(path) if isinstance(path, ArtifactFolder) else open_folder(path) as folder:
        tokenizer = tokenizer or Tokenizer.load(folder)
        capacity = min(capacity, tokenizer.settings.positions)
        executable = load(
            folder, device=device, capacity=capacity, weights=weights, check=check, tune=tune, progress=progress
        )
        return TextModel(executable, tokenizer)
