"""Parts of tokenizer.json: whole tokenizers of each model, and components to put into them, harmless and hostile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fuzz.json_changes import change_json

COMPONENTS: Mapping[str, tuple[Any, ...]] = {
    "normalizer": (
        *(None, {"type": "NFC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "x" * 1000}),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
        {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}] * 3},
        {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": ""},
        {"type": "Replace", "pattern": {"String": ""}, "content": "a"},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    ),
    "pre_tokenizer": (
        *(None, {"type": "Whitespace"}, {"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": True}),
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": "(?:"}, "behavior": "Removed", "invert": True},
        {"type": "Split", "pattern": {"String": ""}, "behavior": "MergedWithNext", "invert": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 50},
        {"type": "FixedLength", "length": 0},
    ),
    "decoder": (
        *(None, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "BPEDecoder", "suffix": ""}),
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Strip", "content": " ", "start": 0, "stop": 1000},
        {"type": "Strip", "content": "a", "start": 1000, "stop": 0},
        {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
        {"type": "WordPiece", "prefix": "", "cleanup": True},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 1, "stop": 1}]},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
    ),
    "post_processor": (
        None,
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "BertProcessing", "sep": ["a", 4_000_000_000], "cls": ["b", 1]},
        {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "none", "type_id": 0}}], "pair": [],
         "special_tokens": {}},
        {"type": "Sequence", "processors": []},
    ),
    "truncation": (
        None,
        {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
        {"direction": "Left", "max_length": 0, "strategy": "OnlyFirst", "stride": 5},
        {"direction": "Right", "max_length": 2, "strategy": "OnlySecond", "stride": 2},
    ),
    "padding": (
        None,
        {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
         "pad_token": "a"},
        {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": 2**62, "pad_id": 2**32 - 1,
         "pad_type_id": 0, "pad_token": ""},
    ),
}  # fmt: skip
ADDED: tuple[Any, ...] = tuple(
    {"id": id, "content": content, "single_word": False, "lstrip": strip, "rstrip": strip, "normalized": strip,
     "special": not strip}
    for id, content, strip in ((0, "a", False), (2**32 - 1, "<far>", False), (300, "", True), (7, "ab", True))
)  # fmt: skip


@cache
def whole() -> tuple[str, ...]:
    """A tokenizer of each model, each with other components, as the library saves them."""
    words = {"[UNK]": 0, "a": 1, "##b": 2, "the": 3, "[CLS]": 4, "[SEP]": 5, "ab": 6}
    word_level = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    word_level.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    piece = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    piece.normalizer = normalizers.BertNormalizer()
    piece.pre_tokenizer, piece.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    piece.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 4), ("[SEP]", 5)])
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), ("▁ab", -1.5)], unk_id=0))
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return _bytes(), *(one.to_str() for one in (word_level, piece, unigram)), _split()


def _bytes() -> str:
    """One token for each byte, one merge, two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: id for id, letter in enumerate([*alphabet, "<end>", "ab", "<begin>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<begin>"])
    return str(tokenizer.to_str())


def _split() -> str:
    """A byte-level tokenizer that cuts by an expression, as those of newer models do."""
    document = json.loads(_bytes())
    pattern = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document["normalizer"] = {"type": "NFC"}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
    document["model"]["ignore_merges"] = True
    return json.dumps(document)


def changed_tokenizer(random: Random, document: Any) -> Any:
    """A tokenizer.json with another component, one more token, a part of another tokenizer, or any change of JSON."""
    kind = random.randrange(10)
    if kind < 4 and isinstance(document, dict):
        name = random.choice(tuple(COMPONENTS))
        return document | {name: random.choice(COMPONENTS[name])}
    if kind < 5 and isinstance(document, dict) and isinstance(document.get("added_tokens"), list):
        return document | {"added_tokens": [*document["added_tokens"], random.choice(ADDED)]}
    if kind < 6 and isinstance(document, dict):
        other = json.loads(random.choice(whole()))
        name = random.choice(tuple(other))
        return document | {name: other[name]}
    return change_json(random, document, (), tuple(one for some in COMPONENTS.values() for one in some))
