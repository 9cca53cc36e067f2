"""Every assumption about a recording: a doctored one refutes exactly it, and the error names the evidence."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.checkpoints.config import PRESETS, TransformerConfig
from kern.manifest.types import Kernel
from kern.mining import Launch, read_recording
from kern.recorded.assumptions import Refuted
from kern.recorded.evidence import Evidence, gather_evidence
from kern.recorded.library import recorded_kernels
from kern.recorded.vllm.engine import VLLM
from kern.recorded.vllm.param_bindings import SOURCES
from kern.recorded.vllm.signatures import SIGNATURES
from support.vllm_recording import Doctor, Launched, record

TINY = PRESETS["qwen3"]["tiny"]

Where = Callable[[Launched], bool]


def at(part: str, *, layer: int | None = None, several: bool | None = None, number: int | None = None) -> Where:
    """The launches of a part: of one layer, of passes of several tokens or of one, of one pass."""

    def here(launch: Launched) -> bool:
        return (
            launch.part == part
            and layer in (None, launch.layer)
            and several in (None, launch.tokens > 1)
            and number in (None, launch.number)
            and launch.number > 0  # the first pass has no attention, and is not looked at
        )

    return here


def changed(where: Where, **values: Any) -> Doctor:
    """Parameters with other values; a function makes one of the old."""

    def doctor(launch: Launched) -> None:
        if where(launch):
            for name, value in values.items():
                launch.values[name] = value(launch.values.get(name, 0)) if callable(value) else value

    return doctor


def launched(where: Where, **fields: Any) -> Doctor:
    """Launches with other fields: symbol, module, grid, drop, …"""

    def doctor(launch: Launched) -> None:
        if where(launch):
            for name, value in fields.items():
                setattr(launch, name, value(getattr(launch, name)) if callable(value) else value)

    return doctor


def bytes_on(count: int) -> Callable[[int], int]:
    return lambda value: value + count


def other_dtype(symbol: str) -> str:
    return symbol.replace("8BFloat16", "4Half")


LAST = {"layer": 1, "several": True}

DOCTORED: list[tuple[str, Doctor, str]] = [
    ("backend", launched(at("attention"), drop=True), r"none of kernel_unified_attention, but .*nvjet"),
    ("backend", launched(at("reduce"), drop=True), "none of reduce_segments"),
    ("layers", launched(at("attention", **LAST), drop=True), "1 time; expected: 2"),
    (
        "order",
        launched(at("k_norm", **LAST), drop=True),
        "layer 1, k_norm .* launches .*rotary_embedding_kernel",
    ),
    ("order", launched(at("after", **LAST), drop=True), "layer 1, after .*: the pass ends"),
    (
        "order",
        launched(at("reduce", layer=0, number=2), drop=True),
        "layer 0, reduce .* launches .*fused_add",
    ),
    ("order", launched(at("cache", **LAST), stream=9), "layer 1, cache .* is on stream 9; expected: 7"),
    ("parameters", launched(lambda each: each.part == "rotary", sizes=[8] * 13), "rotary .* given 0:8 8:8"),
    ("instance", launched(at("cache", **LAST), module="reduce"), "layer 1, cache .* of module"),
    (
        "instance",
        launched(at("activation", **LAST), module="unknown"),
        "module of .*act_and_mul.* is not known",
    ),
    ("instance", launched(at("rotary", **LAST), attributes={"cluster": [2, 1, 1]}), "cluster"),
    (
        "instances",
        launched(at("attention", several=False), module="attention of several"),
        "attention .* and ",
    ),
    ("dtypes", launched(at("rotary"), symbol=lambda s: s.replace("S2_Lb1", "S2_Lb0")), "Lb0E"),
    ("dtypes", launched(at("activation"), symbol=other_dtype), "4Half"),
    (
        "grids",
        launched(at("q_norm", **LAST), grid=[7, 4, 1]),
        r"q_norm .*: the grid is \[7, 4, 1\]; expected: \[28",
    ),
    ("grids", launched(at("attention", **LAST), grid=[1, 1, 1]), r"\[1, 1, 1\]; expected: \[1, 2, 1\]"),
    (
        "sizes",
        changed(lambda each: each.part == "input_norm", hidden_size=256),
        "norms take rows of 64, 256 elements; expected: 128",
    ),
    ("sizes", changed(at("activation", **LAST), d=255), "`d` = 255; expected: 256"),
    ("sizes", changed(at("cache", **LAST), value_stride=128), "`value_stride` = 128; expected: 512"),
    ("sizes", changed(at("rotary", **LAST), num_kv_heads=4), "`num_kv_heads` = 4; expected: 2"),
    ("constants", changed(at("attention", **LAST), scale=0.25), "`scale` = 0.25; expected: 0.125"),
    ("constants", changed(at("attention", number=2, layer=1), num_seqs=2), "`num_seqs` = 2; expected: 1"),
    ("constants", changed(at("rotary", **LAST), inverse=1), "`inverse` = 1"),
    ("epsilon", changed(at("k_norm", **LAST), epsilon=1e-5), "`epsilon` = 9.99.*e-06; expected: 9.99.*e-07"),
    ("views", changed(at("k_norm", **LAST), input=bytes_on(64)), "k_norm .* `input` = 0x.* 512 bytes behind"),
    ("views", changed(at("cache", **LAST), value=bytes_on(-512)), "cache .* `value` = 0x.* 768 bytes behind"),
    (
        "apart",
        changed(at("attention", **LAST), query=bytes_on(512)),
        "`query` = 0x.* rotary .* has: `query` = 0x",
    ),
    ("apart", changed(at("cache", layer=0), key=bytes_on(512)), "layer 0, cache .* `key` = 0x"),
    (
        "residual",
        changed(at("after", **LAST), residual=bytes_on(512)),
        "`residual` = 0x.* input_norm .* `input` =",
    ),
    ("in-place", lambda each: _aliased(each), "add_norm .* `input` = 0x.* as .* has `residual`"),
    ("weights", changed(at("k_norm"), weight=7), "k_norm .* `weight` = 0x7, as of layer 0, k_norm"),
    (
        "weights",
        changed(at("add_norm", layer=1, number=4), weight=bytes_on(256)),
        "layer 1, add_norm .*pass 4",
    ),
    ("rope-table", changed(at("rotary", **LAST), cos_sin_cache=bytes_on(256)), "`cos_sin_cache` = 0x"),
    ("rope-table", changed(at("rotary", number=5), cos_sin_cache=bytes_on(256)), "pass 5 of 1 token.*pass 1"),
    ("inputs", changed(at("rotary", **LAST), positions=bytes_on(8)), "`positions` = 0x.* layer 0, rotary"),
    ("inputs", changed(at("reduce", layer=1), seq_lens=bytes_on(8)), "reduce .* `seq_lens` = 0x"),
    ("pool", lambda each: _pool(each, 1, 7 * 2**40), "`key_cache` = 0x70000000000, as of layer 0, cache"),
    ("pool", lambda each: _pool(each, 1 if each.number == 4 else 9, 7 * 2**40), "pass 4 .* `key_cache` = 0x"),
    (
        "page",
        lambda each: _strides(each, block_stride=2 * 32 * 128),
        "`block_stride` = 8192.* expected: 16 slots",
    ),
    ("page", lambda each: _strides(each, page_stride=256), "`page_stride` = 256"),
    (
        "shared-pool",
        changed(at("attention", **LAST), value_cache=bytes_on(512)),
        "attention .* `value_cache` = 0x",
    ),
    ("shared-pool", changed(at("attention", layer=1), v_scale=bytes_on(512)), "attention .* `v_scale` = 0x"),
    ("shared-pool", changed(at("attention", **LAST), stride_v_cache_1=64), "`stride_v_cache_1` = 64"),
    ("parts", changed(at("reduce", layer=1), segm_max=bytes_on(512)), "reduce .* `segm_max` = 0x"),
    ("parts", changed(at("reduce", layer=1), output=bytes_on(512)), "reduce .* `output` = 0x"),
    (
        "literals",
        changed(at("activation", **LAST), alpha=2.0),
        "`alpha` = 2.0; expected: as .* `alpha` = 1.0",
    ),
    (
        "literals",
        changed(at("activation", number=5, layer=0), alpha=2.0),
        "pass 5 of 1 token.* `alpha` = 2.0",
    ),
    (
        "literals",
        changed(at("attention", number=2, layer=1), block_table_stride=16),
        "`block_table_stride` = 16",
    ),
    (
        "launches",
        launched(at("cache", number=4, layer=0), grid=[7, 2, 1]),
        r"grid: \(2, 1\); expected: \(1, 1\)",
    ),
    (
        "launches",
        launched(at("attention", number=2, layer=1), grid=[1, 2, 8]),
        r"grid: \(2, 8\); .* \(2, 16\)",
    ),
    (
        "launches",
        launched(at("attention", layer=1), block=[64, 1, 1]),
        r"block: \(64, 1, 1\); expected: \(128",
    ),
    (
        "launches",
        launched(at("rotary", number=3, layer=1), block=[64, 1, 1]),
        r"pass 3 .* block: \(64, 1, 1\)",
    ),
    ("launches", launched(at("reduce", layer=1), shared=64), "shared memory: 64; expected: 0"),
]


def _aliased(launch: Launched) -> None:
    """A product's norm in the residual's place."""
    if at("add_norm", **LAST)(launch):
        launch.values["input"] = launch.values["residual"]


def _pool(launch: Launched, layer: int, base: int) -> None:
    """All layers up to `layer` in one place, or one elsewhere; values as far behind as they are."""
    if launch.part in ("cache", "attention") and launch.layer <= layer and launch.number > 0:
        apart = launch.values["value_cache"] - launch.values["key_cache"]
        launch.values |= {"key_cache": base, "value_cache": base + apart} if layer < 9 else {}


def _strides(launch: Launched, **strides: int) -> None:
    """Other strides, the same for cache write and attention."""
    for place, name in enumerate(("block_stride", "page_stride", "head_stride")):
        if name in strides and launch.part == "cache":
            launch.values[name] = strides[name]
        if name in strides and launch.part == "attention":
            launch.values |= {f"stride_{which}_cache_{place}": strides[name] for which in "kv"}


def launched_in(dump: Path) -> tuple[Launch, ...]:
    (process,) = dump.iterdir()
    return read_recording(process).launches


def examine(launches: Sequence[Launch], config: TransformerConfig, *, ended: bool = True) -> Evidence:
    return gather_evidence(VLLM, launches, config, ended=ended)


@pytest.mark.parametrize(
    ("assumption", "doctor", "says"), DOCTORED, ids=[f"{id}-{number}" for number, (id, _, _) in enumerate(DOCTORED)]
)
def test_a_doctored_recording_refutes_its_assumption(
    tmp_path: Path, assumption: str, doctor: Doctor, says: str
) -> None:
    launches = launched_in(record(tmp_path / "dump", TINY, doctor))

    with pytest.raises(Refuted) as caught:
        examine(launches, TINY)

    refuted = caught.value
    assert refuted.assumption.id == assumption, refuted
    assert re.search(says, refuted.message), refuted.message
    assert refuted.message.startswith(f"the recording refutes `{assumption}`: ")
    assert refuted.assumption.says in refuted.help


def test_passes_of_several_tokens_are_needed(tmp_path: Path) -> None:
    launches = launched_in(record(tmp_path / "dump", TINY, prompts=(1, 1)))

    with pytest.raises(Refuted, match=r"are 1, 1, 1, 1, 1, 1; expected: 1, and some number above 1") as caught:
        examine(launches, TINY)
    assert caught.value.assumption.id == "tokens"


def test_every_assumption_is_refuted_by_some_recording() -> None:
    ids = [assumption.id for assumption in VLLM.assumptions]

    assert {id for id, _, _ in DOCTORED} | {"tokens"} == set(ids)
    assert len(set(ids)) == len(ids)


def test_the_document_lists_every_assumption() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recorded-kernels.md").read_text()

    assert re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page.split("| assumption |")[1], re.M) == [
        (assumption.id, assumption.says) for assumption in VLLM.assumptions
    ]


def test_a_recording_of_another_model_is_refused(tmp_path: Path) -> None:
    launches = launched_in(record(tmp_path / "dump", TINY))

    for config in (
        replace(TINY, hidden=256),
        replace(TINY, ffn=512),
        replace(TINY, heads=8),
        replace(TINY, norm_eps=1e-5),
        replace(TINY, layers=1),
    ):
        with pytest.raises(Refuted):
            examine(launches, config)
    examine(launches, TINY)


def test_a_model_as_wide_as_a_recorded_head_is_refused_by_its_width(tmp_path: Path) -> None:
    launches = launched_in(record(tmp_path / "dump", TINY))

    with pytest.raises(Refuted, match=f"rows of {TINY.hidden} elements; expected: {TINY.head_dim}") as caught:
        examine(launches, replace(TINY, hidden=TINY.head_dim))
    assert caught.value.assumption.id == "sizes"


ROLES = {"input_norm": "norm", "q_norm": "norm", "k_norm": "norm", "after": "add_norm"}
PLACES = sorted(
    {
        (part, name)
        for source in SOURCES
        for part in source.parts
        for signature in SIGNATURES
        if signature.role == ROLES.get(part, part)
        for name, _ in signature.params
    }
)
"""Each part of a pass, with each of its parameters."""


@cache
def undoctored() -> dict[str, Kernel]:
    with tempfile.TemporaryDirectory() as folder:
        return recorded_kernels(examine(launched_in(record(Path(folder, "dump"), TINY)), TINY), TINY)


def assert_refuted_or_the_same(doctor: Doctor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        launches = launched_in(record(Path(folder, "dump"), TINY, doctor))
    try:
        found = recorded_kernels(examine(launches, TINY), TINY)
    except Refuted:
        return
    assert found == undoctored()


@settings(max_examples=40, deadline=None)
@given(
    place=st.sampled_from(PLACES),
    layer=st.integers(0, 1),
    number=st.sampled_from([1, 2, 4, 7, 9]),
    change=st.sampled_from([1, 16, 256, -256]),
)
def test_no_parameter_can_differ_unseen_and_change_the_artifact(
    place: tuple[str, str], layer: int, number: int, change: int
) -> None:
    part, name = place
    doctor = changed(at(part, layer=layer, number=number), **{name: lambda value: max(0, value + change)})

    assert_refuted_or_the_same(doctor)


@settings(max_examples=20, deadline=None)
@given(
    part=st.sampled_from(sorted({part for part, _ in PLACES})),
    layer=st.integers(0, 1),
    number=st.sampled_from([1, 2, 4, 7, 9]),
    field=st.sampled_from(["grid", "block", "shared"]),
    axis=st.integers(0, 2),
)
def test_no_launch_can_differ_unseen_and_change_the_artifact(
    part: str, layer: int, number: int, field: str, axis: int
) -> None:
    def more(value: Any) -> Any:
        return value + 16 if field == "shared" else [size + (at == axis) for at, size in enumerate(value)]

    assert_refuted_or_the_same(launched(at(part, layer=layer, number=number), **{field: more}))


def test_the_last_pass_of_a_process_that_was_killed_may_be_cut_off(tmp_path: Path) -> None:
    launches = launched_in(record(tmp_path / "dump", TINY))

    for lost in (3, 6, 12):
        with pytest.raises(Refuted):
            examine(launches[:-lost], TINY)
        found = recorded_kernels(examine(launches[:-lost], TINY, ended=False), TINY)
        assert found == undoctored()
