"""The text side of Hugging Face folders is what transformers 5.24.0 (tokenizers 0.23.3) makes of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.config import UnsupportedModel
from kern.checkpoints.hf_fields import GENERATION_FIELDS
from kern.checkpoints.hf_text import text_of_folder, unknown_generation
from kern.contracts.text import DecodeBytes, TextSettings
from kern.text import Tokenizer
from kern.text.chat import render

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
END, AB, BEGIN, EOT = 256, 257, 258, 259
CONFIG = {"model_type": "llama", "vocab_size": 300, "eos_token_id": END, "bos_token_id": BEGIN}
TEMPLATE = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}|{{ messages[0].content }}"
DECODER = {
    "256": {"content": "<end>", "lstrip": False, "rstrip": False, "normalized": False, "special": True},
    "259": {"content": "<eot>", "lstrip": False, "rstrip": True, "normalized": False, "special": True},
}


def library(*added: str, template: str | None = None) -> Library:
    """One token per byte, `ab`, and the three others, of which tokenizer.json adds `added`."""
    vocabulary = {token: id for id, token in enumerate([*ALPHABET, "<end>", "ab", "<begin>", "<eot>"])}
    found = Library(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens(list(added or ["<end>"]))
    if template is not None:
        found.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<begin>", BEGIN), ("<end>", END)]
        )
    return found


def folder(path: Path, tokenizer: Library | None = None, /, **files: Any) -> Path:
    """A folder of tokenizer.json and settings, each given as `NAME=content` without `.json`."""
    path.mkdir()
    (path / "tokenizer.json").write_text((tokenizer or library()).to_str())
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def tokenizer_of(text: TextSource) -> Tokenizer:
    settings = TextSettings(
        vocabulary=300,
        positions=64,
        embedding="table",
        stop_ids=text.stop_ids,
        bos=text.bos,
        chat_template=text.chat_template,
        special_tokens=dict(text.special_tokens),
        tokenizer_sha256=None,
        decode_bytes=DecodeBytes(fixed=1, per_context_token=1),
    )
    assert text.tokenizer_json is not None
    return Tokenizer(settings, text.tokenizer_json.decode())


DECODED = {"eos_token": "<eot>", "added_tokens_decoder": DECODER}
NAMED = {
    "bos_token": "<begin>",
    "eos_token": {"__type": "AddedToken", "content": "<eot>", "lstrip": True, "rstrip": False, "normalized": False},
}
MAP = {"eos_token": "<eot>", "pad_token": {"content": "<begin>", "lstrip": False, "rstrip": False, "normalized": False}}

STRIPS = {"__type": "AddedToken", "content": "<eot>", "lstrip": True, "normalized": False, "special": True}
MORE = ("a <eot> <begin>b", [64, EOT, 220, BEGIN, 65], "a b", "||||hi")

# Files, a text, its ids and what is decoded of them, the rendered chat: as transformers 5.24.0 gives them.
RECORDED: list[tuple[dict[str, Any], str, list[int], str, str]] = [
    ({"tokenizer_config": DECODED}, "a<eot>  b", [64, EOT, 65], "ab", "|<eot>|||hi"),
    ({"tokenizer_config": DECODED}, "a<begin>", [64, 27, 65, 68, 70, 72, 77, 29], "a<begin>", "|<eot>|||hi"),
    ({"tokenizer_config": NAMED}, "a <eot> b", [64, EOT, 220, 65], "a b", "<begin>|<eot>|||hi"),
    ({"tokenizer_config": NAMED}, "a<begin>", [64, BEGIN], "a", "<begin>|<eot>|||hi"),
    (
        {"tokenizer_config": {"eos_token": "<end>"}, "special_tokens_map": MAP},
        "a <eot> b",
        [64, 220, EOT, 220, 65],
        "a  b",
        "|<eot>||<begin>|hi",
    ),
    (  # with an added_tokens_decoder, special_tokens_map.json does not count
        {"tokenizer_config": DECODED | {"eos_token": "<end>"}, "special_tokens_map": MAP},
        "a <eot> b",
        [64, 220, EOT, 65],
        "a b",
        "|<end>|||hi",
    ),
    (
        {"tokenizer_config": {"eos_token": "<end>"}, "added_tokens": {"<new>": 260, "<eot>": EOT}},
        "<new> <eot> b",
        [260, 220, EOT, 220, 65],
        "<new> <eot> b",
        "|<end>|||hi",
    ),
    (  # its flags count before those of tokenizer.json; what is special stays so
        {"tokenizer_config": {"added_tokens_decoder": {"256": DECODER["256"] | {"rstrip": True, "special": False}}}},
        "a<end>  b",
        [64, END, 65],
        "ab",
        "||||hi",
    ),
    ({"tokenizer_config": {"bos_token": None, "eos_token": "<end>"}}, "ab", [AB], "ab", "|<end>|||hi"),
    ({"tokenizer_config": {}}, "ab", [AB], "ab", "||||hi"),
    # Further special tokens, in a list or by name.
    ({"tokenizer_config": {"additional_special_tokens": ["<begin>", STRIPS]}}, *MORE),
    ({"tokenizer_config": {"extra_special_tokens": [STRIPS, "<begin>"]}}, *MORE),
    ({"tokenizer_config": {"extra_special_tokens": {"image_token": "<begin>", "end_token": STRIPS}}}, *MORE),
    ({"tokenizer_config": {"image_token": "<begin>", "end_token": STRIPS}}, *MORE),
    ({"tokenizer_config": {}, "special_tokens_map": {"additional_special_tokens": ["<begin>", STRIPS]}}, *MORE),
    (
        {"tokenizer_config": {"additional_special_tokens": ["<begin>"], "extra_special_tokens": {"end_token": STRIPS}}},
        *MORE,
    ),
    (  # tokens without an id get theirs in the order of their names in transformers, not in that of the file
        {"tokenizer_config": {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}},
        "<pad>a<unk>",
        [261, 64, 260],
        "a",
        "|<end>|<unk>|<pad>|hi",
    ),
    (
        {"tokenizer_config": {"additional_special_tokens": ["<new>"]}, "added_tokens": {"<new>": 260}},
        "a<new>",
        [64, 260],
        "a",
        "||||hi",
    ),
    (
        {
            "tokenizer_config": {"additional_special_tokens": ["<begin>"]},
            "special_tokens_map": {"additional_special_tokens": ["<eot>"]},
        },
        "a<eot><begin>",
        [64, 27, 68, 78, 83, 29, BEGIN],
        "a<eot>",
        "||||hi",
    ),
]


@pytest.mark.parametrize(("files", "text", "ids", "decoded", "chat"), RECORDED)
def test_named_and_added_tokens_are_those_of_transformers(
    tmp_path: Path, files: dict[str, Any], text: str, ids: list[int], decoded: str, chat: str
) -> None:
    files = {**files, "tokenizer_config": files["tokenizer_config"] | {"chat_template": TEMPLATE}}
    tokenizer = tokenizer_of(text_of_folder(folder(tmp_path / "m", **files), CONFIG))

    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == decoded
    assert render(tokenizer, [{"role": "user", "content": "hi"}]) == chat


def test_a_named_token_is_special_and_keeps_its_other_flags(tmp_path: Path) -> None:
    plain = library()
    plain.add_tokens(
        [AddedToken(token, special=False, lstrip=True, normalized=False) for token in ("<eot>", "<begin>")]
    )
    files = {"tokenizer_config": {"eos_token": "<eot>", "additional_special_tokens": ["<begin>"]}}
    tokenizer = tokenizer_of(text_of_folder(folder(tmp_path / "m", plain, **files), CONFIG))

    ids = tokenizer.encode("a <eot> <begin>b")
    assert ids == [64, EOT, BEGIN, 65]
    assert tokenizer.decode(ids) == "a<begin>b"  # transformers 5.24.0: a token of the list alone is not made special


def test_saved_padding_names_the_padding_token_and_is_switched_off(tmp_path: Path) -> None:
    padded = library()
    padded.enable_padding(length=10, pad_id=END, pad_token="<end>")
    padded.enable_truncation(max_length=3)
    text = text_of_folder(folder(tmp_path / "m", padded), CONFIG)

    assert text.special_tokens == {"pad_token": "<end>"}
    assert tokenizer_of(text).encode("abxyzxyz") == [AB, 87, 88, 89, 87, 88, 89]


@pytest.mark.parametrize(
    ("files", "config", "stops"),
    [
        ({}, END, (END,)),
        ({}, [END, EOT], (END, EOT)),
        ({"generation_config": {"eos_token_id": [EOT, AB]}}, END, (EOT, AB, END)),
        ({"generation_config": {"eos_token_id": EOT}}, None, (EOT,)),
        ({"generation_config": {"eos_token_id": None}, "tokenizer_config": {"eos_token": "<eot>"}}, None, (EOT,)),
        ({"generation_config": {"eos_token_id": EOT}, "tokenizer_config": {"eos_token": "<eot>"}}, END, (EOT, END)),
        ({"special_tokens_map": {"eos_token": {"content": "<eot>"}}}, None, (EOT,)),
        ({"tokenizer_config": {"eos_token": None}}, [], ()),
    ],
)
def test_an_id_that_any_file_calls_an_end_ends_a_text(
    tmp_path: Path, files: dict[str, Any], config: Any, stops: tuple[int, ...]
) -> None:
    assert text_of_folder(folder(tmp_path / "m", **files), CONFIG | {"eos_token_id": config}).stop_ids == stops


@pytest.mark.parametrize("field", [name for name, each in GENERATION_FIELDS.items() if each.verdict == "refused"])
def test_a_setting_of_generation_that_would_change_the_choice_is_refused(tmp_path: Path, field: str) -> None:
    path = folder(tmp_path / "odd", generation_config={field: "odd"})
    (path / "tokenizer.json").unlink()  # prompts of ids are continued, too

    with pytest.raises(UnsupportedModel, match=f"^{field} in generation_config.json is 'odd'; .*remove it"):
        text_of_folder(path, CONFIG)
    for number, value in enumerate((None, *GENERATION_FIELDS[field].unless)):
        with_it = folder(tmp_path / str(number), generation_config={field: value})
        assert text_of_folder(with_it, CONFIG) == text_of_folder(folder(tmp_path / f"{number} without"), CONFIG)


def test_settings_of_sampling_change_nothing(tmp_path: Path) -> None:
    odd = {name: ["odd"] for name, each in GENERATION_FIELDS.items() if each.verdict == "irrelevant"}
    sampled = folder(tmp_path / "sampled", generation_config=odd | {"warp": 1})

    assert text_of_folder(sampled, CONFIG) == text_of_folder(folder(tmp_path / "plain"), CONFIG)
    assert unknown_generation(sampled) == ("generation_config.warp",)


def test_a_beginning_from_tokenizer_and_template_comes_once(tmp_path: Path) -> None:
    settings = {"bos_token": "<begin>", "add_bos_token": True, "chat_template": "{{ bos_token }}hi"}
    path = folder(tmp_path / "m", library("<begin>", template="<begin> $A"), tokenizer_config=settings)
    tokenizer = tokenizer_of(text_of_folder(path, CONFIG))

    assert tokenizer.encode("ab") == [BEGIN, AB]
    assert tokenizer.encode_exactly(render(tokenizer, [{"role": "user", "content": "x"}])) == [BEGIN, 71, 72]


STARTS = processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", BEGIN)])


@pytest.mark.parametrize(
    ("processor", "bos"),
    [
        (None, None),
        (processors.ByteLevel(), None),
        (processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", BEGIN)]), BEGIN),
        (
            processors.Sequence(
                [
                    processors.ByteLevel(),
                    processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", BEGIN)]),
                ]
            ),
            BEGIN,
        ),
        (
            processors.Sequence(
                [
                    processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", BEGIN)]),
                    processors.ByteLevel(),
                ]
            ),
            BEGIN,
        ),
    ],
)
def test_the_post_processor_says_what_comes_before_a_text(tmp_path: Path, processor: Any, bos: int | None) -> None:
    tokenizer = library()
    if processor is not None:
        tokenizer.post_processor = processor

    assert text_of_folder(folder(tmp_path / "m", tokenizer), CONFIG).bos == bos


def test_a_tokenizer_without_an_unknown_token_has_a_beginning_as_well(tmp_path: Path) -> None:
    digits = Library(models.Unigram([(digit, -1.0) for digit in "0123456789"], unk_id=None))
    digits.add_special_tokens(["<s>"])
    digits.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 10)])
    digits.enable_truncation(max_length=1)
    digits.enable_padding(length=24, direction="left")

    assert text_of_folder(folder(tmp_path / "m", digits), CONFIG).bos == 10


TWICE = processors.TemplateProcessing(single="<begin> $A $A", special_tokens=[("<begin>", BEGIN)])


@pytest.mark.parametrize(
    ("processor", "settings", "says"),
    [
        ("<begin> $A <end>", {}, "puts '<end>' after every text"),
        ("$A <end>", {"add_eos_token": True}, "puts '<end>' after every text"),
        (processors.BertProcessing(("<end>", END), ("<begin>", BEGIN)), {}, "puts '<end>' after every text"),
        ("<begin> <begin> $A", {}, "puts 2 ids before every text"),
        (processors.Sequence([STARTS, STARTS]), {}, "puts 2 ids before every text"),
        (TWICE, {}, "template with 2 texts"),
        ("<begin> $A", {"add_bos_token": False}, "add_bos_token: False, but .* adds one"),
        ("$A", {"add_bos_token": True}, "add_bos_token: True, but .* does not add one"),
        ("$A", {"add_eos_token": True}, "add_eos_token: True, but .* does not add one"),
        ("$A <end>", {"add_eos_token": False}, "add_eos_token: False, but .* adds one"),
        ("$A", {"split_special_tokens": True}, "split_special_tokens"),
        ("$A", {"bos_token": 3}, "bos_token is 3"),
        ("$A", {"eos_token": ""}, "eos_token is ''"),
        ("$A", {"eos_token": {"lstrip": True}}, "eos_token is"),
        ("$A", {"unk_token": "\ud800"}, "unk_token has an unpaired surrogate"),
        ("$A", {"chat_template": "\ud800"}, "chat_template has an unpaired surrogate at 0"),
        (
            "$A",
            {"chat_template": [{"name": "default", "template": "x\udfff"}]},
            "chat_template has an unpaired surrogate",
        ),
        ("$A", {"eos_token": {"content": "<end>", "lstrip": "no"}}, "eos_token is .* flags must be"),
        ("$A", {"added_tokens_decoder": {"9" * 5000: "<a>"}}, "added_tokens_decoder is not an object"),
        ("$A", {"extra_special_tokens": "<end>"}, "extra_special_tokens is '<end>'"),
        ("$A", {"additional_special_tokens": [3]}, "additional_special_tokens is 3"),
        ("$A", {"added_tokens_decoder": []}, "added_tokens_decoder is not an object"),
        ("$A", {"added_tokens_decoder": {"x": "<a>"}}, "added_tokens_decoder is not an object"),
        ("$A", {"added_tokens_decoder": {"256": {"content": "<end>", "special": 1}}}, "flags must be"),
        (
            "$A",
            {"added_tokens_decoder": {"7": {"content": "<end>"}}},
            "gives '<end>' the id 256; other files say 7",
        ),
        ("$A", {"added_tokens_decoder": {"999": {"content": "<new>"}}}, "gives '<new>' the id 260"),
    ],
)
def test_settings_that_would_be_read_wrongly_are_refused_by_name(
    tmp_path: Path, processor: Any, settings: dict[str, Any], says: str
) -> None:
    tokenizer = library(template=processor if isinstance(processor, str) else None)
    if not isinstance(processor, str):
        tokenizer.post_processor = processor
    path = folder(tmp_path / "m", tokenizer, tokenizer_config=settings)

    with pytest.raises(CheckpointError, match=says):
        text_of_folder(path, CONFIG)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens", {"<new>": "260"}),
        ("added_tokens", {"<new>": True}),
        ("special_tokens_map", {"eos_token": []}),
    ],
)
def test_the_older_files_are_checked_as_well(tmp_path: Path, name: str, content: Any) -> None:
    with pytest.raises(CheckpointError, match=rf"{name}\.json"):
        text_of_folder(folder(tmp_path / "m", **{name: content}), CONFIG)


def test_a_template_with_an_unknown_token_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", library("<begin>", "<end>", template="<begin> $A"), tokenizer_config={})
    document = json.loads((path / "tokenizer.json").read_text())
    document["post_processor"]["single"][0]["SpecialToken"]["id"] = "<other>"
    (path / "tokenizer.json").write_text(json.dumps(document))

    with pytest.raises(CheckpointError, match="template with the unknown token '<other>'"):
        text_of_folder(path, CONFIG)
