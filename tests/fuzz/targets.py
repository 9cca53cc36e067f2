"""All fuzz targets by name."""

from __future__ import annotations

from fuzz import elf, manifest, recordings, safetensors
from fuzz.target import Target

TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in (manifest, elf, safetensors, recordings)}
