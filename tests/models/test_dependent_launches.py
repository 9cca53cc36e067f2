"""Kernels that start before the one ahead of them has finished read early only what was written before that one.

`start_next_kernel` in the sources explains why: only after a kernel that waits before it lets the next one start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from kern.checkpoints.config import Family, preset
from kern.contracts.text import DECODING
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.manifest.types import Manifest, Step
from kern.models.buffers import Limits
from kern.models.kernel_set import cuda_sizes
from kern.models.transformer import build_manifest
from models.test_speculation_manifest import manifest_of
from models.test_transformer import CONFIGS

READ_EARLY = ("append_attention_partial", "_rows_partial", "_rows_full_partial", "combine")
"""How the kernels' names end that read positions, slots, lengths or pages before they wait."""


OTHERS = ("prefill", "begin", "step", "score", "nll", "draft_precompute", "accept", "begin_spec")


def waits_first(step: Step) -> bool:
    """Whether a kernel waits for those ahead of it before it lets the next one start, as an operator always does."""
    if step.operator:
        return not step.pdl
    assert step.cubin is not None
    return step.cubin.startswith(("matvec", "wide")) or (
        step.cubin.startswith("attention_") and step.symbol.endswith("_partial")
    )


def launches(manifest: Manifest, program: str) -> Iterator[Step]:
    for dispatch in manifest.programs[program].dispatches:
        yield from manifest.kernels[dispatch.kernel].impl.steps


@pytest.mark.parametrize("program", ["decode", "draft", "verify", "draft_wide", "verify_wide"])
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_read_early_has_been_written(name: str, program: str) -> None:
    steps = list(launches(manifest_of(name, "sm_90a", Limits(sequences=8)), program))
    early = [place for place, step in enumerate(steps) if step.symbol.endswith(READ_EARLY)]

    assert early
    assert not steps[0].symbol.endswith(READ_EARLY)
    assert all(steps[place].pdl and waits_first(steps[place - 1]) for place in early)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_nor_is_anything_read_too_early_in_a_step_of_many_sequences(family: Family) -> None:
    config, limits = preset(family, "tiny"), Limits(sequences=64)
    kernels = cuda_kernels(CudaPlan("sm_90a", cuda_sizes(config, limits)), defaultdict(lambda: "0" * 64))
    manifest = build_manifest(config, kernels, model="test", limits=limits)
    for program in (name for name in DECODING if name in manifest.programs):
        steps = list(launches(manifest, program))
        early = [place for place, step in enumerate(steps) if step.symbol.endswith(READ_EARLY)]

        assert early
        assert all(steps[place].pdl and waits_first(steps[place - 1]) for place in early)


@pytest.mark.parametrize("program", OTHERS)
def test_other_programs_have_no_kernel_that_reads_early(program: str) -> None:
    steps = launches(manifest_of("qwen3 tiny", "sm_90a"), program)

    assert not [step.symbol for step in steps if step.symbol.endswith(READ_EARLY)]
