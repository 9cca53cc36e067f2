"""The generated text that a draft is trained and measured on, and its file."""

from __future__ import annotations

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kern.manifest.errors import KernError

_DTYPES: Final[Mapping[str, type[np.generic]]] = {
    "ids": np.uint32,
    "lengths": np.uint32,
    "prompts": np.uint32,
    "ended": np.bool_,
    "kinds": np.uint8,
}
"""The arrays of a file, all one-dimensional: `ids` of all texts in sequence, the others with one element per text."""
_DAMAGE: Final = (
    *(EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file may raise: excessive sizes, nesting too deep, unknown zip flags."""


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
            name: np.array(values, dtype=_DTYPES[name])
            for name, values in {
                "ids": [id for text in texts for id in text.ids],
                "lengths": [len(text.ids) for text in texts],
                "prompts": [text.prompt for text in texts],
                "ended": [text.ended for text in texts],
                "kinds": [kinds.index(text.kind) for text in texts],
            }.items()
        }
        about = {"kinds": kinds, "training": len(self.training), "recipe": self.recipe}
        path.parent.mkdir(parents=True, exist_ok=True)
        work = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with work.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
            os.replace(work, path)
        finally:
            work.unlink(missing_ok=True)


def load_corpus(path: Path) -> Corpus:
    """Read a file that `Corpus.save` wrote. Raises CorpusError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CorpusError(f"{path} is not a regular file", "make it with generate")
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            arrays = {name: file[name] for name in _DTYPES}
        return _corpus(about, arrays)
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}", "make it with generate") from error
    except _DAMAGE as error:
        raise CorpusError(f"{path} is not a corpus: {error}", "make it with generate") from error


def _corpus(about: Any, arrays: Mapping[str, NDArray[Any]]) -> Corpus:
    """The texts of a file's arrays. Raises ValueError for arrays and descriptions that are not those of texts."""
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name] or array.ndim != 1:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
    ids, lengths, prompts, ended, kinds = (arrays[name] for name in _DTYPES)
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    if not len(lengths) == len(prompts) == len(ended) == len(kinds) or bounds[-1] != len(ids):
        raise ValueError("its arrays are not of the same texts")
    if not np.all((prompts >= 1) & (prompts < lengths)):
        raise ValueError("it has a text without a prompt, or without a completion")
    names, training, recipe = _described(about, len(lengths))
    if len(kinds) and int(kinds.max()) >= len(names):
        raise ValueError(f"it has texts of kind {int(kinds.max())}, and names {len(names)}")
    texts = tuple(
        Text(names[kind], tuple(ids[start:end].tolist()), prompt, last)
        for kind, start, end, prompt, last in zip(
            kinds.tolist(), bounds[:-1], bounds[1:], prompts.tolist(), ended.tolist(), strict=True
        )
    )
    return Corpus(texts[:training], texts[training:], recipe)


def _described(about: Any, count: int) -> tuple[list[str], int, dict[str, Any]]:
    """The names of kinds, the texts to train on of `count`, and the recipe. Raises ValueError."""
    if not isinstance(about, dict):
        raise ValueError("it does not say what it holds")
    kinds, training, recipe = (about.get(key) for key in ("kinds", "training", "recipe"))
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise ValueError("its kinds are not a list of names")
    if type(training) is not int or not 0 <= training <= count:
        raise ValueError(f"it has {count} texts, and {training!r} of them to train on")
    if not isinstance(recipe, dict):
        raise ValueError("its recipe is not an object")
    return kinds, training, recipe


def padded(texts: Sequence[Text]) -> NDArray[np.int64]:
    """i64 [texts, longest]: ids, then zeros."""
    table = np.zeros((len(texts), max(len(text.ids) for text in texts)), dtype=np.int64)
    for row, text in zip(table, texts, strict=True):
        row[: len(text.ids)] = text.ids
    return table
