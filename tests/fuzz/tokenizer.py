"""Fuzz target: text.json with tokenizer.json. What is accepted turns texts into ids of the vocabulary, and ids back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from fuzz.byte_changes import change_bytes
from fuzz.json_changes import change_json, json_text
from fuzz.target import ACCEPTED, Target, require
from fuzz.tokenizer_parts import changed_tokenizer, whole
from kern.engine.sequence import token_ids
from kern.text import Tokenizer
from kern.text.tokenizer import TextStream
from support.tokenizers import bytes_tokenizer

PART = b"\n---- tokenizer.json ----\n"
"""Between the two files in an input; without it there is no tokenizer."""
HASH = b"<the hash>"
"""In text.json: the hash of the tokenizer.json that follows, so that changes of it are seen."""
TEXTS = (
    "",
    " ",
    "ab",
    "a" * 40 + "b",
    "The café, 12345 €\n\n  def f(x):\treturn 你好 🙂",
    "<end><begin>[CLS]",
    "\0\ufffd",
)


@cache
def seeds() -> tuple[bytes, ...]:
    """A folder's files for a tokenizer of each model, and one without a tokenizer."""
    named = bytes_tokenizer(bos=258, template="{{ messages[0].content }}").settings
    settings = [named.model_copy(update={"tokenizer_sha256": HASH.decode()}), bytes_tokenizer().settings]
    texts = [one.model_dump_json().encode() for one in settings]
    return *(texts[0] + PART + tokenizer.encode() for tokenizer in whole()), texts[1]


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the settings or the tokenizer: JSON anywhere, another component, more tokens; or bytes anywhere."""
    settings, part, tokenizer = data.partition(PART)
    try:
        if random.random() < 0.15:
            document = change_json(random, json.loads(settings), (), (2**62, None, [0, 1]))
            return json_text(random, document) + part + tokenizer
        if random.random() < 0.9 and part:
            document = changed_tokenizer(random, json.loads(tokenizer))
            return settings + part + json_text(random, document)
    except (ValueError, RecursionError):
        pass  # JSON that was damaged before
    return change_bytes(random, data, others)


def run(data: bytes, folder: Path) -> str:
    """Load the text side of a folder, and use it."""
    settings, part, content = data.partition(PART)
    (folder / "manifest.json").write_bytes(b"{}")
    (folder / "text.json").write_bytes(settings.replace(HASH, hashlib.sha256(content).hexdigest().encode()))
    if part:
        (folder / "tokenizer.json").write_bytes(content)
    tokenizer = Tokenizer.load(folder)
    if not tokenizer.has_vocabulary:
        return ACCEPTED
    for text in TEXTS:
        ids = tokenizer.encode(text)
        require(all(type(id) is int for id in ids), f"ids that are not integers: {ids[:9]}")
        require(ids == tokenizer.encode(text), f"encoding twice differs: {text!r}")
        if ids:
            require(token_ids(ids, tokenizer.settings.vocabulary) == ids, f"other ids than the tokenizer: {ids[:9]}")
        tokenizer.decode(ids).encode()
    ids = list(range(0, tokenizer.settings.vocabulary, 1 + tokenizer.settings.vocabulary // 300))
    tokenizer.decode(ids).encode()
    stream = TextStream(tokenizer)
    "".join([*(stream.add(id) for id in ids), stream.finish()]).encode()
    return ACCEPTED


TARGET = Target("tokenizer", seeds, change, run, short=60, seconds=5.0)
