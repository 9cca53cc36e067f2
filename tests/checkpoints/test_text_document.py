"""docs/text.md says what the code does: fields of text.json, keys of GGUF, pre-tokenizers."""

from __future__ import annotations

import re
from pathlib import Path

import gguf

from kern.checkpoints.gguf_fields import TEXT_FIELDS
from kern.checkpoints.gguf_tokenizer import PRE_TOKENIZERS
from kern.contracts.text import TEXT_VERSION, TextSettings
from kern.text.tokenizer_file import MAX_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "text.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    _, _, table = PAGE.partition(f"| {heading} |")
    lines = table.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_field_of_text_json_is_described() -> None:
    assert [row[0] for row in rows("field")] == [f"`{name}`" for name in TextSettings.model_fields]
    assert rows("field")[0][1].startswith(f"{TEXT_VERSION}.")


def test_the_table_of_gguf_keys_is_the_codes() -> None:
    assert rows("key") == [[f"`{key}`", field.verdict, field.note] for key, field in TEXT_FIELDS.items()]


def test_every_key_that_the_gguf_package_knows_is_in_the_table() -> None:
    keys = {value for name, value in vars(gguf.Keys.Tokenizer).items() if not name.startswith("_")}

    assert {key.replace("{name}", "*") for key in keys} <= TEXT_FIELDS.keys()


def test_every_pre_tokenizer_is_described() -> None:
    named = {name.strip("` ") for row in rows("pre-tokenizer") for name in row[0].split(",")}

    assert named == PRE_TOKENIZERS.keys()


def test_the_bound_is_the_codes() -> None:
    assert f"never to more than {MAX_BYTES:,}." in " ".join(PAGE.split())
