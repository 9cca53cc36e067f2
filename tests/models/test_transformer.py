"""The generator's manifests: valid for every known shape, and no larger than they need be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from kern.checkpoints.config import PRESETS, TransformerConfig, UnsupportedModel, preset
from kern.kernels.host_library import host_kernels
from kern.manifest.reading import read
from kern.manifest.types import BufferArg, Manifest
from kern.manifest.writing import write
from kern.models.buffers import Limits
from kern.models.transformer import build_manifest
from kern.verifier import check
from support.reference import SMOLLM2_CONFIG

CONFIGS = {
    "smollm2": SMOLLM2_CONFIG,
    **{f"{family} {name}": config for family, presets in PRESETS.items() for name, config in presets.items()},
}


def manifest_of(config: TransformerConfig, limits: Limits | None = None) -> Manifest:
    kernels = host_kernels(defaultdict(lambda: "0" * 64), q_heads=config.heads, kv_heads=config.kv_heads)
    return build_manifest(config, kernels, model="test", limits=limits)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_known_shape_gives_a_valid_manifest(name: str) -> None:
    manifest = manifest_of(CONFIGS[name])

    assert check(manifest) == ()
    assert read(write(manifest).encode()).manifest == manifest


@pytest.mark.parametrize("limits", [Limits(sequences=4), Limits(chunk=1), Limits(chunk=16), Limits(sequences=100)])
def test_limits_of_all_sorts_give_a_valid_manifest(limits: Limits) -> None:
    assert check(manifest_of(preset("qwen3", "tiny"), limits)) == ()


def test_what_differs_between_families_follows_the_config() -> None:
    plain, normed = (manifest_of(preset(family, "tiny")) for family in PRESETS)

    assert "lm_head" in normed.buffers
    assert "lm_head" not in plain.buffers
    assert {"q_head_norm", "k_head_norm"} <= set(normed.kernels)
    assert not {"q_head_norm", "k_head_norm"} & set(plain.kernels)


def test_prefill_computes_nothing_that_no_state_depends_on() -> None:
    dispatches = manifest_of(SMOLLM2_CONFIG).programs["prefill"].dispatches
    read = {arg.buf for dispatch in dispatches for arg in dispatch.args if isinstance(arg, BufferArg)}

    assert dispatches[-1].kernel == "cache_write"
    assert sum(dispatch.kernel == "attention_prefill" for dispatch in dispatches) == 29
    assert not {"logits", "norm", "layers.29.down_proj"} & read


def test_the_layers_of_the_cache_follow_each_other() -> None:
    manifest = manifest_of(SMOLLM2_CONFIG)
    written = [d.args[2] for d in manifest.programs["decode"].dispatches if d.kernel == "cache_write"]

    assert [getattr(arg, "offset", None) for arg in written] == [layer * 2 * 3 * 16 * 64 * 2 for layer in range(30)]
    assert manifest.states["kv"].bytes_per_token == 30 * 2 * 3 * 64 * 2


def test_a_head_size_that_the_kernels_do_not_support_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="head_dim is 512"):
        manifest_of(replace(preset("llama", "tiny"), head_dim=512))
