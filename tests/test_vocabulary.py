"""The runtime side contains no word of any model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kern

RUNTIME_SIDE = ("manifest", "verifier", "artifact", "device", "runtime")
WORDS = re.compile(
    r"attention|\bkv\b|kv_|_kv|qwen|llama|smollm|mistral|transformer|tokenizer|\bprompt|prefill|\brope\b|rotary"
    r"|softmax|logit|\bgelu|\bsilu|\bswiglu|embedding|detokeni|vocabular|\bllm\b",
    re.IGNORECASE,
)


def sources() -> list[Path]:
    root = Path(kern.__file__).parent
    return sorted(
        p for name in RUNTIME_SIDE for p in (root / name).rglob("*") if p.suffix in (".py", ".h", ".cu", ".c")
    )


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_word_of_a_model(path: Path) -> None:
    found = [
        f"{path}:{n}: {line.strip()}" for n, line in enumerate(path.read_text().splitlines(), 1) if WORDS.search(line)
    ]
    assert not found, "\n".join(found)
    assert not WORDS.search(path.name)
