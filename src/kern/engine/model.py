"""Text models: a folder opened once, its tokenizer, and its executable on a device."""

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
    """An executable and the tokenizer of the same folder. Returned by `open_model`; closes with its context."""

    executable: Executable
    tokenizer: Tokenizer

    @property
    def settings(self) -> TextSettings:
        """The folder's text.json."""
        return self.tokenizer.settings

    def generator(self, *, chunk: int | None = None, eager: bool = False, spec: bool = False) -> Generator:
        """A generator for this model; see `Generator`. Raises ContractError and PromptError."""
        return Generator(self.executable, self.tokenizer, chunk=chunk, eager=eager, spec=spec)

    def score(self, text: str | Ids, *, progress: Callable[[int, int], None] | None = None) -> Score:
        """The score of a text or of token ids; see `kern.engine.score`. Also raises NoTokenizer and NotText."""
        ids = self.tokenizer.encode(text) if isinstance(text, str) else text
        return score(self.executable, self.settings, ids, progress=progress)

    def __enter__(self) -> TextModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release everything that was loaded. A second call does nothing."""
        self.executable.close()


def open_model(
    path: str | Path | ArtifactFolder,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "auto",
    capacity: int = 4096,
    pool_tokens: int | None = None,
    weights: str | Path | None = None,
    check: bool = False,
    tune: bool = False,
    progress: Progress | None = None,
) -> TextModel:
    """Open the folder at `path` and load its text model; an open folder is read as it is, and stays open.

    `tokenizer` is the open folder's, if it has been read already. `capacity` is in tokens per sequence, and limited to
    the model's positions. `pool_tokens` is what all sequences that run at once share: by default the capacity of one.
    The other options are those of `kern.load`. Raises what `Tokenizer.load` and `kern.load` raise.
    """
    with nullcontext(path) if isinstance(path, ArtifactFolder) else open_folder(path) as folder:
        tokenizer = tokenizer or Tokenizer.load(folder)
        capacity = min(capacity, tokenizer.settings.positions)
        executable = load(
            folder, device=device, capacity=capacity, pool_tokens=pool_tokens, weights=weights, check=check, tune=tune,
            progress=progress,
        )  # fmt: skip
        return TextModel(executable, tokenizer)
