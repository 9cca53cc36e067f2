"""The generated text that a draft is trained and measured on, and its file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kern.manifest.errors import KernError


class CorpusError(KernError):
    """A file of generated text that cannot be read."""

    code: ClassVar[str] = "corpus"
    exit_code: ClassVar[int] = 2


@dataclass(frozen=True)
class Text:
    """A prompt and the target's completion of it: `ids` holds both, the completion begins at `prompt`.

    `ended`: the last id is a stop token, so nothing would follow.
    """

    kind: str
    ids: tuple[int, ...]
    prompt: int
    ended: bool


@dataclass(frozen=True)
class Corpus:
    """Texts to train on, texts held out, and how they were made."""

    training: tuple[Text, ...]
    held_out: tuple[Text, ...]
    recipe: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write one compressed npz under another name and rename it. Raises OSError."""
        texts = (*self.training, *self.held_out)
        kinds = sorted({text.kind for text in texts})
        arrays: dict[str, NDArray[Any]] = {
            "ids": np.array([id for text in texts for id in text.ids], dtype=np.uint32),
            "lengths": np.array([len(text.ids) for text in texts], dtype=np.uint32),
            "prompts": np.array([text.prompt for text in texts], dtype=np.uint32),
            "ended": np.array([text.ended for text in texts], dtype=np.bool_),
            "kinds": np.array([kinds.index(text.kind) for text in texts], dtype=np.uint8),
            "about": np.array(json.dumps({"kinds": kinds, "training": len(self.training), "recipe": self.recipe})),
        }
        work = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with work.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            os.replace(work, path)
        finally:
            work.unlink(missing_ok=True)


def load_corpus(path: Path) -> Corpus:
    """Read a file that `Corpus.save` wrote. Raises CorpusError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            bounds = np.concatenate([[0], np.cumsum(file["lengths"], dtype=np.int64)]).tolist()
            ids, prompts = file["ids"].tolist(), file["prompts"].tolist()
            ended, kinds = file["ended"].tolist(), file["kinds"].tolist()
        texts = tuple(
            Text(about["kinds"][kind], tuple(ids[start:end]), prompt, last)
            for kind, start, end, prompt, last in zip(kinds, bounds, bounds[1:], prompts, ended, strict=False)
        )
        return Corpus(texts[: about["training"]], texts[about["training"] :], about["recipe"])
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}", "make it with generate") from error
    except (EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise CorpusError(f"{path} is no corpus: {error}", "make it with generate") from error


def padded(texts: Sequence[Text]) -> NDArray[np.int64]:
    """i64 [texts, longest]: ids, then zeros."""
    table = np.zeros((len(texts), max(len(text.ids) for text in texts)), dtype=np.int64)
    for row, text in zip(table, texts, strict=True):
        row[: len(text.ids)] = text.ids
    return table
