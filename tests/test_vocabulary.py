"""The runtime side, the recorder and the analysis of records contain no word of any model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kern

WITHOUT_MODELS = (
    *("manifest", "files", "toolchain", "verifier", "artifact", "device", "verification", "runtime"),
    *("capture", "mining"),
)
WORDS = re.compile(
    r"attention|\bkv\b|kv_|_kv|qwen|llama|smollm|mistral|mixtral|gemma|deepseek|\bgpt|\bmoe\b|\bllm\b|transformer"
    r"|tokenizer|detokeni|\bvocab|\bprompt|prefill|(?<!\.)\bdecod(?:e|er|ing)\b|\blayers?\b|token_id|next_token"
    r"|\brope\b|rotary|softmax|logit|\bgelu|\bsilu|\bswiglu|\bnorms?\b|rms_?norm|embedding|residual|perplexity"
    r"|\bsampling",
    re.IGNORECASE,
)


def sources() -> list[Path]:
    root = Path(kern.__file__).parent
    packages = (
        p for name in WITHOUT_MODELS for p in (root / name).rglob("*") if p.suffix in (".py", ".h", ".cu", ".c")
    )
    return sorted([*packages, *root.glob("*.py")])


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_word_of_a_model(path: Path) -> None:
    found = [
        f"{path}:{n}: {line.strip()}" for n, line in enumerate(path.read_text().splitlines(), 1) if WORDS.search(line)
    ]
    assert not found, "\n".join(found)
    assert not WORDS.search(path.name)
