"""Building an artifact folder: a provider's generator run, its output written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kern.artifact.folder import KERNELS, MANIFEST, WEIGHTS
from kern.building.atomic_folder import check_output, replacing
from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.config import FAMILIES, Family, TransformerConfig, UnsupportedModel, preset, shown
from kern.checkpoints.fetch import SMOLLM2, fetch
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.gguf_file import gguf_library, is_gguf
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.checkpoints.tensors import check_checkpoint
from kern.manifest.counts import listed
from kern.manifest.errors import KernError, variant
from kern.manifest.types import Manifest
from kern.manifest.writing import write
from kern.models.buffers import MAX_SEQUENCES, Limits
from kern.models.kernel_set import check_target, kernel_set
from kern.models.speculation.draft import RANDOM, open_draft
from kern.models.text_files import text_settings, write_text_files
from kern.models.transformer import build_manifest
from kern.models.weights import OWN, RECORDED, WeightGroup, weight_group, write_weights
from kern.recorded.kernel_set import recorded_kernel_set

KNOWN_MODELS: Final = ("smollm2",)
_MOST_NAMED: Final = 20

Progress = Callable[[str, int, int], None]
"""Told what is being done (`fetch`, `weights`), the bytes done and their total."""


BuildError = variant(KernError, "build-options", "Invalid build options.", exit_code=2)


@dataclass(frozen=True, slots=True)
class Built:
    """What was written: the folder, the target, the manifest, and the bytes of its weights (0 for none).

    `notes` say how the checkpoint was read, `warnings` which of its settings are unknown, a line each.
    """

    path: Path
    target: str
    manifest: Manifest
    weight_bytes: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def build(
    name: str,
    output: str | Path,
    *,
    checkpoint: str | Path | None = None,
    random: bool = False,
    seed: int | None = None,
    config: str | None = None,
    target: str = "auto",
    force: bool = False,
    weights: bool = True,
    limits: Limits | None = None,
    capture: str | Path | None = None,
    draft: str | Path | None = None,
    taps_before: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Built:
    """Write the artifact folder `output` for `name`: a family (`llama`, `qwen3`) or a known model (`smollm2`).

    A family takes its parameters from `checkpoint` (a Hugging Face folder or a GGUF file), or from a generator
    seeded with `seed` (None is 0) for `random`, at the sizes of the preset `config`. `target` is `host`, an
    instruction set such as `x86-64-v3`, an architecture such as `sm_90a`, or `auto` for this machine. `limits` are
    the greatest sizes of a call. With `force` an artifact folder that is there is
    replaced; until the new one is whole it stays as it is. `weights=False` leaves the weights file out.
    `capture` is a recording of vLLM running this very model: the layers then run on its kernels, for one sequence, and
    `auto` is the target that those were built for.
    `draft` is a DSpark checkpoint's folder, or `random` for a draft of random weights and the true shape: the folder
    then holds the programs of speculation too. `taps_before` takes each of its features one layer earlier.
    `strict` refuses a checkpoint with unknown settings, which a warning names otherwise.

    Raises BuildError, OutputError, UnknownTarget, UnsupportedModel, CheckpointError, FetchError, NoCacheFolder,
    CompilerMissing and what else the target's compiler raises; with a recording MiningError, Refuted, WrongTarget.
    """
    tell: Progress = progress or (lambda stage, done, total: None)
    output = Path(output)
    check_target(target)
    check_output(output, force)
    limits = limits or Limits()
    _check_draft(draft, taps_before, capture, limits)
    _check_seed(seed, random or draft == RANDOM)
    source = _checkpoint(name, checkpoint, random, seed, config, tell)
    sizes, precision = source.config, OWN if capture is None else RECORDED
    unknown = _unknown(source.unknown, "the checkpoint", strict)
    if weights:
        check_checkpoint(source)
    settings = text_settings(sizes, source.text, precision)
    speculative = None if draft is None else open_draft(draft, source, seed=seed or 0, taps_before=taps_before)
    if speculative is not None:
        unknown += _unknown(speculative.unknown, "the draft", strict)
    _check_limits(limits, sizes, None if speculative is None else speculative.config.rows)
    kernels = (
        kernel_set(target, sizes, limits, None if speculative is None else speculative.config)
        if capture is None
        else recorded_kernel_set(Path(capture), target, sizes, limits)
    )
    manifest = build_manifest(
        sizes, kernels.entries, model=_label(name, config), limits=limits, block=kernels.block, draft=speculative
    )
    with replacing(output, force) as folder:
        (folder / MANIFEST).write_text(write(manifest), encoding="utf-8")
        _write_modules(folder / KERNELS, manifest, kernels.modules)
        write_text_files(folder, settings, source.text.tokenizer_json)
        groups = [weight_group(source, precision), *([] if speculative is None else [speculative.weight_group])]
        size = _write_weights(folder / WEIGHTS, groups, tell) if weights else 0
    return Built(output, kernels.target, manifest, size, source.notes, unknown)


def _unknown(fields: Sequence[str], whose: str, strict: bool) -> tuple[str, ...]:
    """A warning that names unknown settings. Raises UnsupportedModel if strict."""
    if not fields:
        return ()
    named = [name if name.isprintable() else shown(name) for name in fields]
    warning = f"unknown settings of {whose}: {listed(named, _MOST_NAMED)}"
    if strict:
        raise UnsupportedModel(warning, "without --strict they are ignored")
    return (f"{warning}; they are ignored",)


def _label(name: str, config: str | None) -> str:
    return name if config is None else config if config.startswith(name) else f"{name} {config}"


def _check_draft(draft: str | Path | None, taps_before: bool, capture: str | Path | None, limits: Limits) -> None:
    if draft is None and taps_before:
        raise BuildError("taps are a draft's, and none is asked for", "give --draft, or leave --taps-before out")
    if draft is not None and capture is not None:
        raise BuildError("a draft is built on our own kernels alone", "leave either --draft or --capture out")
    if draft is not None and limits.sequences != 1:
        raise BuildError(
            f"a draft serves one sequence, and --sequences is {limits.sequences}", "leave --sequences or --draft out"
        )


def _check_limits(limits: Limits, config: TransformerConfig, round_rows: int | None) -> None:
    """Raises BuildError for calls that the kernels cannot run, or that the model has no use for."""
    chunk, sequences = limits.chunk, limits.sequences
    if sequences > MAX_SEQUENCES:
        raise BuildError(
            f"--sequences is {sequences}, and the kernels run {MAX_SEQUENCES:,} at most",
            f"give {MAX_SEQUENCES} or less",
        )
    if sequences > chunk:
        raise BuildError(
            f"a decode step of {sequences} sequences has as many tokens, and --chunk allows {chunk}",
            f"give --chunk {sequences} or more",
        )
    if round_rows is not None and round_rows > chunk:
        raise BuildError(
            f"a round of this draft has {round_rows} tokens, and --chunk allows {chunk}",
            f"give --chunk {round_rows} or more",
        )
    if chunk > max(config.max_positions, Limits().chunk):
        raise BuildError(
            f"--chunk is {chunk}, and the model has {config.max_positions} positions",
            f"give --chunk {config.max_positions} or less",
        )


def _check_seed(seed: int | None, random: bool) -> None:
    if seed is not None and (not random or seed < 0):
        reason = "is below 0" if seed < 0 else "is for random weights alone"
        raise BuildError(f"the seed {seed} {reason}", "leave --seed out, or give 0 or more with --random")


def _checkpoint(
    name: str, path: str | Path | None, random: bool, seed: int | None, config: str | None, tell: Progress
) -> Checkpoint:
    if name in KNOWN_MODELS:
        if random or config is not None:
            raise BuildError(f"{name} comes with its own weights", f"leave the rest out: kern build {name} -o DIR")
        return _expect("llama", _open(Path(path)) if path is not None else _fetched(tell))
    if name not in FAMILIES:
        known = ", ".join((*FAMILIES, *KNOWN_MODELS))
        raise BuildError(f"unknown model {name!r}", f"give one of: {known}")
    family: Family = name
    if random == (path is not None):
        raise BuildError(f"{name} needs weights", "give --checkpoint PATH, or --random with --config")
    if path is None:
        if config is None:
            raise BuildError("random weights need sizes", "give --config with known sizes, such as tiny")
        return RandomCheckpoint(preset(family, config), seed or 0)
    if config is not None:
        raise BuildError("a checkpoint has its own config", "leave --config out")
    return _expect(family, _open(Path(path)))


def _fetched(tell: Progress) -> Checkpoint:
    gguf_library()  # before a download that would be of no use without it
    return GgufCheckpoint(fetch(SMOLLM2, lambda done, total: tell("fetch", done, total)))


def _open(path: Path) -> Checkpoint:
    if os.path.isdir(path):
        return HuggingFaceCheckpoint(path)
    if path.suffix == ".gguf" or is_gguf(path):
        return GgufCheckpoint(path)
    fault = "is not a checkpoint" if os.path.exists(path) else "does not exist"
    raise CheckpointError(f"{path} {fault}", "give a Hugging Face folder (config.json, safetensors) or a GGUF file")


def _expect(family: Family, checkpoint: Checkpoint) -> Checkpoint:
    if checkpoint.config.family != family:
        found = checkpoint.config.family
        raise UnsupportedModel(f"the checkpoint is of family {found}, not {family}", f"build it as {found}")
    return checkpoint


def _write_modules(folder: Path, manifest: Manifest, modules: Mapping[str, bytes]) -> None:
    """Write the modules that some step of the manifest is in."""
    folder.mkdir()
    steps = (step for kernel in manifest.kernels.values() for step in kernel.impl.steps)
    for name in sorted({step.cubin for step in steps if step.cubin is not None}):
        (folder / name).write_bytes(modules[name])


def _write_weights(path: Path, groups: Sequence[WeightGroup], tell: Progress) -> int:
    write_weights(path, groups, lambda done, total: tell("weights", done, total))
    return path.stat().st_size
