"""The checkpoint that a build takes its config and weights from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.config import FAMILIES, Family, UnsupportedModel, preset
from kern.checkpoints.fetch import SMOLLM2, fetch
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.gguf_file import gguf_library, is_gguf
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.random_checkpoint import RandomCheckpoint


def open_source(options: BuildOptions, fetched: Callable[[int, int], None]) -> Checkpoint:
    """The checkpoint of options that were checked; `fetched` is called with the bytes downloaded and their total.

    Raises UnsupportedModel, CheckpointError, FetchError, NoCacheFolder.
    """
    family: Family = options.model if options.model in FAMILIES else "llama"  # as SmolLM2 is
    if options.checkpoint is not None:
        return _expect(family, _open(Path(options.checkpoint)))
    if options.config is not None:
        return RandomCheckpoint(preset(family, options.config), options.seed or 0)
    gguf_library()  # before a download that would be of no use without it
    return GgufCheckpoint(fetch(SMOLLM2, fetched))


def _open(path: Path) -> Checkpoint:
    if os.path.isdir(path):
        return HuggingFaceCheckpoint(path)
    if path.suffix == ".gguf" or is_gguf(path):
        return GgufCheckpoint(path)
    problem = "is not a checkpoint" if os.path.exists(path) else "does not exist"
    raise CheckpointError(f"{path} {problem}", "give a Hugging Face folder (config.json, safetensors) or a GGUF file")


def _expect(family: Family, checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.config.family != family:
        found = checkpoint.config.family
        raise UnsupportedModel(f"the checkpoint is of family {found}, not {family}", f"build it as {found}")
    return checkpoint
