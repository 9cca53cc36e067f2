"""Building an artifact folder: a provider's generator run, its output written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kern.artifact.folder import KERNELS, MANIFEST, WEIGHTS
from kern.building.atomic_folder import check_output, replacing
from kern.building.options import BuildOptions
from kern.building.source import open_source
from kern.checkpoints.config import UnsupportedModel, shown
from kern.checkpoints.tensors import check_checkpoint
from kern.manifest.counts import listed
from kern.manifest.types import Manifest
from kern.manifest.writing import write
from kern.models.kernel_set import check_target, is_host, kernel_set, resolved_target
from kern.models.speculation.draft import open_draft
from kern.models.text_files import text_settings, write_text_files
from kern.models.transformer import build_manifest
from kern.models.weights import OWN, RECORDED, weight_group, write_weights
from kern.recorded.kernel_set import recorded_kernel_set

_MOST_NAMED: Final = 20

Progress = Callable[[str, int, int], None]
"""Called with what is being done (`fetch`, `weights`), the bytes done and their total."""


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


def build(options: BuildOptions, output: str | Path, *, force: bool = False, progress: Progress | None = None) -> Built:
    """Write the artifact folder `output`; with `force` an artifact folder that is there is replaced.

    Until the new folder is whole, the old one stays as it is.
    Raises BuildError, OutputError, UnknownTarget, UnsupportedModel, CheckpointError, FetchError, NoCacheFolder,
    CompilerMissing and what else the target's compiler raises; with a recording MiningError, Refuted, WrongTarget.
    """
    report: Progress = progress or (lambda stage, done, total: None)
    output = Path(output)
    options.check()
    check_target(options.target)
    check_output(output, force)
    source = open_source(options, lambda done, total: report("fetch", done, total))
    config, precision = source.config, OWN if options.capture is None else RECORDED
    warnings = _unknown(source.unknown, "the checkpoint", options.strict)
    if options.weights:
        check_checkpoint(source)
    settings = text_settings(config, source.text, precision)
    draft, draft_config = None, None
    if options.draft is not None:
        draft = open_draft(options.draft, source, seed=options.seed or 0, taps_before=options.taps_before)
        draft_config = draft.config
        warnings += _unknown(draft.unknown, "the draft", options.strict)
    options.check_chunk(config, None if draft_config is None else draft_config.rows)
    target = options.target if options.capture is not None else resolved_target(options.target)
    limits = options.limits(host=is_host(target), round_rows=None if draft_config is None else draft_config.rows)
    kernels = (
        kernel_set(target, config, limits, draft_config)
        if options.capture is None
        else recorded_kernel_set(Path(options.capture), target, config, limits)
    )
    manifest = build_manifest(
        config, kernels.entries, model=options.label, limits=limits, block=kernels.block, draft=draft
    )
    groups = [weight_group(source, precision), *([] if draft is None else [draft.weight_group])]
    with replacing(output, force) as folder:
        (folder / MANIFEST).write_text(write(manifest), encoding="utf-8")
        _write_modules(folder / KERNELS, manifest, kernels.modules)
        write_text_files(folder, settings, source.text.tokenizer_json)
        if options.weights:
            write_weights(folder / WEIGHTS, groups, lambda done, total: report("weights", done, total))
        size = (folder / WEIGHTS).stat().st_size if options.weights else 0
    return Built(output, kernels.target, manifest, size, source.notes, warnings)


def _unknown(fields: Sequence[str], whose: str, strict: bool) -> tuple[str, ...]:
    """A warning that names unknown settings. Raises UnsupportedModel if strict."""
    if not fields:
        return ()
    named = [name if name.isprintable() else shown(name) for name in fields]
    warning = f"unknown settings of {whose}: {listed(named, _MOST_NAMED)}"
    if strict:
        raise UnsupportedModel(warning, "without --strict they are ignored")
    return (f"{warning}; they are ignored",)


def _write_modules(folder: Path, manifest: Manifest, modules: Mapping[str, bytes]) -> None:
    """Write the modules that some step of the manifest is in."""
    folder.mkdir()
    steps = (step for kernel in manifest.kernels.values() for step in kernel.impl.steps)
    for name in sorted({step.cubin for step in steps if step.cubin is not None}):
        (folder / name).write_bytes(modules[name])
