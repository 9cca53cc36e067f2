"""All fuzz targets by name."""

from __future__ import annotations

from fuzz import chat, checkpoint, elf, gguf, manifest, recordings, safetensors, tokenizer
from fuzz.target import Target

MODULES = (manifest, elf, safetensors, gguf, tokenizer, recordings, chat, checkpoint)
TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in MODULES}
