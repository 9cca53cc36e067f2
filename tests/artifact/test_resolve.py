"""Rule 10: every code from a folder that deserves exactly it, and what resolving finds where nothing is wrong."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from kern.artifact import Resolution, open_folder, resolve
from kern.artifact.codes import CODES
from kern.artifact.errors import UnknownTarget
from kern.manifest.diagnostics import FolderExample
from kern.manifest.params import Param, layout
from kern.manifest.types import Manifest
from support.host_modules import BASELINE, shared_object
from support.nvrtc import cubin

CUDA = r"""
extern "C" __global__ void __launch_bounds__(256) scale(float *out, const float *in, float by) { *out = *in * by; }
extern "C" __global__ void tiled(float *out) {
    __shared__ float tile[1024];
    tile[threadIdx.x] = *out;
    __syncthreads();
    *out = tile[7];
}
__global__ void mangled(float *out) { *out = 1; }
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __block_size__((64, 2, 1)) shaped(float *out) { *out = 1; }
#endif
"""
OTHER_SCALE = 'extern "C" __global__ void scale(float *out, long long n) { out[n] = 1; }'
WIDE = r"""
extern "C" __global__ void wide(const float *x, float *y, int n) {
    float r[200];
    #pragma unroll
    for (int i = 0; i < 200; i++) r[i] = x[i * n + threadIdx.x];
    __syncthreads();
    float s = 0;
    #pragma unroll
    for (int i = 0; i < 200; i++) s = s * r[199 - i] + r[i];
    y[threadIdx.x] = s;
}"""
C = '#include "kern_host.h"\nKERN_KERNEL(scale, "ptr,ptr,f32") { (void)launch; (void)params; }'
SCALE = ["out buffer<f32>", "in buffer<f32>", "f32"]
ONE = ["inout buffer<f32>"]


def step(symbol: str = "scale", params: list[str] = SCALE, **fields: Any) -> dict[str, Any]:
    """A step as JSON."""
    args = [{"arg": index} for index in range(len(params))]
    return {"symbol": symbol, "params": params, "block": [64, 1, 1], "grid": [1, 1, 1], "args": args, **fields}


def pinned(name: str, image: bytes) -> dict[str, Any]:
    """The fields that pin a step to a file."""
    return {"cubin": name, "sha256": hashlib.sha256(image).hexdigest()}


def weight(dtype: str = "f32", shape: tuple[int, ...] = (2, 3)) -> dict[str, Any]:
    """A weight buffer as JSON."""
    return {"dtype": dtype, "shape": list(shape), "class": "weight"}


@dataclass(frozen=True)
class Artifact:
    """A folder to be: one kernel per step (k0, k1, …), files by path, and the options of `resolve`."""

    steps: tuple[dict[str, Any], ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    buffers: Mapping[str, Any] = field(default_factory=dict)
    symbols: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    plant: Callable[[Path], None] = lambda folder: None

    def manifest(self) -> Manifest:
        kernels = {
            f"k{index}": {"params": step["params"], "impl": {"steps": [step]}} for index, step in enumerate(self.steps)
        }
        document = {
            "meta": {"version": 2, "model": "test"},
            "symbols": self.symbols,
            "buffers": self.buffers,
            "kernels": kernels,
            "programs": {},
        }
        return Manifest.model_validate(document, strict=False)

    def resolve(self, folder: Path, **options: Any) -> Resolution:
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
        (folder / "kernels").mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        self.plant(folder)
        with open_folder(folder) as opened:
            return resolve(self.manifest(), opened, **{**self.options, **options})


def safetensors(**arrays: np.ndarray[Any, Any]) -> dict[str, bytes]:
    return {"weights.safetensors": save(arrays)}


def link(name: str) -> Callable[[Path], None]:
    """Puts a link to a real module, outside the folder, at `name`."""

    def plant(folder: Path) -> None:
        outside = folder.with_name("outside")
        outside.write_bytes(SM90)
        (folder / name).symlink_to(outside)

    return plant


SM90, SM80, SM86 = cubin(CUDA, "sm_90a"), cubin(CUDA, "sm_80"), cubin(CUDA, "sm_86")
OTHER, HOST = cubin(OTHER_SCALE, "sm_90a"), shared_object(C)
K = {"kernels/k.cubin": SM90}
SO = {"kernels/k.so": HOST}
CHANGED = bytes([SM90[-1] ^ 1])
FLOATS = np.zeros((2, 3), np.float32)

# For each code: a folder that has exactly this error, its location, and the fixed folder.
CASES: dict[str, list[tuple[Artifact, str, Artifact]]] = {
    "K1001": [
        (
            Artifact((step(cubin="other.cubin"),), K),
            "/kernels/k0/impl/steps/0/cubin",
            Artifact((step(cubin="k.cubin"),), K),
        ),
    ],
    "K1002": [
        (
            Artifact((step(**pinned("k.cubin", SM90)),), {"kernels/k.cubin": SM90[:-1] + CHANGED}),
            "/kernels/k0/impl/steps/0/sha256",
            Artifact((step(**pinned("k.cubin", SM90)),), K),
        ),
        (
            Artifact((step(**pinned("k.so", b"")),), SO),
            "/kernels/k0/impl/steps/0/sha256",
            Artifact((step(**pinned("k.so", HOST)),), SO),
        ),
    ],
    "K1003": [
        (
            Artifact((step(cubin="k.cubin"),), plant=link("kernels/k.cubin")),
            "/kernels/k0/impl/steps/0/cubin",
            Artifact((step(cubin="k.cubin"),), K),
        ),
        (
            Artifact((step(),), K, plant=link("kernels/l.cubin")),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(),), K),
        ),
        (
            Artifact((step(cubin="../outside"),), K, plant=link("kernels/unused")),
            "/kernels/k0/impl/steps/0/cubin",
            Artifact((step(),), K),
        ),
        (Artifact((step(cubin="/etc/passwd"),), K), "/kernels/k0/impl/steps/0/cubin", Artifact((step(),), K)),
        (
            Artifact((step(),), K, plant=lambda folder: (folder / "kernels" / "more").mkdir()),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(),), K),
        ),
    ],
    "K1004": [
        (
            Artifact((step(),), {"kernels/k.cubin": SM90[:-100]}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(),), K),
        ),
        (
            Artifact((step(cubin="k.cubin"),), {"kernels/k.cubin": b"text"}),
            "/kernels/k0/impl/steps/0/cubin",
            Artifact((step(cubin="k.cubin"),), K),
        ),
        (
            Artifact((step(), step()), {**K, "kernels/README": b"text"}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(), step()), K),
        ),
    ],
    "K1005": [
        (Artifact((step("scales"),), K), "/kernels/k0/impl/steps/0/symbol", Artifact((step("scale"),), K)),
        (
            Artifact((step("mangled", ONE),), K),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step("_Z7mangledPf", ONE),), K),
        ),
        (Artifact((step(),), {}), "/kernels/k0/impl/steps/0/symbol", Artifact((step(),), K)),
    ],
    "K1006": [
        (
            Artifact((step(),), {**K, "kernels/l.cubin": SM80}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(**pinned("k.cubin", SM90)),), {**K, "kernels/l.cubin": SM80}),
        ),
        (
            Artifact((step(),), {**K, "kernels/l.cubin": SM90}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(),), K),
        ),
    ],
    "K1007": [
        (Artifact((step(params=SCALE[:2]),), K), "/kernels/k0/impl/steps/0/params", Artifact((step(),), K)),
        (Artifact((step(params=[*SCALE, "i32"]),), K), "/kernels/k0/impl/steps/0/params", Artifact((step(),), K)),
        (
            Artifact((step(params=SCALE[:1]),), {**K, "kernels/l.cubin": OTHER}),
            "/kernels/k0/impl/steps/0/params",
            Artifact((step(),), {**K, "kernels/l.cubin": OTHER}),
        ),
    ],
    "K1008": [
        (
            Artifact((step(params=[*SCALE[:2], "i64"]),), K),
            "/kernels/k0/impl/steps/0/params/2",
            Artifact((step(),), K),
        ),
        (
            Artifact((step(params=["f32", *SCALE[:2]]),), K),
            "/kernels/k0/impl/steps/0/params/0",
            Artifact((step(),), K),
        ),
        (
            Artifact((step(params=["i32", "i32"]),), {**K, "kernels/l.cubin": OTHER}),
            "/kernels/k0/impl/steps/0/params",
            Artifact((step(params=["out ptr", "i64"]),), {**K, "kernels/l.cubin": OTHER}),
        ),
    ],
    "K1009": [
        (
            Artifact((step(params=[*SCALE[:2], "i32"], **pinned("k.so", HOST)),), SO),
            "/kernels/k0/impl/steps/0/params/2",
            Artifact((step(**pinned("k.so", HOST)),), SO),
        ),
        (
            Artifact((step(params=["i64", *SCALE[1:]], **pinned("k.so", HOST)),), SO),
            "/kernels/k0/impl/steps/0/params/0",
            Artifact((step(**pinned("k.so", HOST)),), SO),
        ),
    ],
    "K1010": [
        (
            Artifact((step("tiled", ONE, shared_mem=99 * 1024 - 4095),), {"kernels/k.cubin": SM86}),
            "/kernels/k0/impl/steps/0/shared_mem",
            Artifact((step("tiled", ONE, shared_mem=99 * 1024 - 4096),), {"kernels/k.cubin": SM86}),
        ),
        (
            Artifact((step("tiled", ONE, shared_mem={"mul": [{"sym": "n"}, 1024]}),), K, symbols={"n": {"max": 224}}),
            "/kernels/k0/impl/steps/0/shared_mem",
            Artifact((step("tiled", ONE, shared_mem={"mul": [{"sym": "n"}, 1024]}),), K, symbols={"n": {"max": 223}}),
        ),
    ],
    "K1011": [
        (
            Artifact((step(block=[257, 1, 1]),), K),
            "/kernels/k0/impl/steps/0/block",
            Artifact((step(block=[16, 4, 4]),), K),
        ),
        (
            Artifact(
                (step("wide", ["in ptr", "out ptr", "i32"], block=[800, 1, 1]),),
                {"kernels/k.cubin": cubin(WIDE, "sm_90a", "--maxrregcount=80")},
            ),
            "/kernels/k0/impl/steps/0/block",
            Artifact(
                (step("wide", ["in ptr", "out ptr", "i32"], block=[768, 1, 1]),),
                {"kernels/k.cubin": cubin(WIDE, "sm_90a", "--maxrregcount=80")},
            ),
        ),
    ],
    "K1012": [
        (
            Artifact((step("shaped", ONE, block=[128, 1, 1]),), K),
            "/kernels/k0/impl/steps/0/block",
            Artifact((step("shaped", ONE, block=[64, 2, 1]),), K),
        ),
    ],
    "K1013": [
        (Artifact((step(),), SO), "/kernels/k0/impl/steps/0", Artifact((step(**pinned("k.so", HOST)),), SO)),
        (
            Artifact((step(cubin="k.so"),), SO),
            "/kernels/k0/impl/steps/0",
            Artifact((step(**pinned("k.so", HOST)),), SO),
        ),
    ],
    "K1014": [
        (
            Artifact((step(cubin="k.cubin"), step(**pinned("k.so", HOST)), step(**pinned("k.so", HOST))), {**K, **SO}),
            "/kernels/k1/impl/steps/0/symbol",
            Artifact((step(cubin="k.cubin"), step(cubin="k.cubin")), {**K, **SO}),
        ),
    ],
    "K1015": [
        (
            Artifact((step(), step()), {"kernels/k.cubin": SM80}, options={"target": "sm_90a"}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(), step()), K, options={"target": "sm_90a"}),
        ),
        (
            Artifact((step(),), K, options={"target": "sm_100"}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(),), K, options={"target": "sm_90"}),
        ),
        (
            Artifact((step(),), K, options={"target": "x86-64-v4"}),
            "/kernels/k0/impl/steps/0/symbol",
            Artifact((step(**pinned("k.so", HOST)),), SO, options={"target": BASELINE}),
        ),
    ],
    "K1016": [
        (
            Artifact(buffers={"w": weight()}),
            "/buffers",
            Artifact(buffers={"w": weight()}, files=safetensors(w=FLOATS)),
        ),
        (
            Artifact(
                buffers={"w": weight()},
                files=safetensors(w=FLOATS),
                options={"weights": Path("nowhere")},
            ),
            "/buffers",
            Artifact(buffers={"w": weight()}, files=safetensors(w=FLOATS)),
        ),
    ],
    "K1017": [
        (
            Artifact(buffers={"w": weight()}, files={"weights.safetensors": b"cut"}),
            "/buffers",
            Artifact(buffers={"w": weight()}, files=safetensors(w=FLOATS)),
        ),
        (
            Artifact(buffers={"w": weight()}, plant=link("weights.safetensors")),
            "/buffers",
            Artifact(buffers={"w": weight()}, files=safetensors(w=FLOATS)),
        ),
    ],
    "K1018": [
        (
            Artifact(buffers={"a/b": weight()}, files=safetensors(w=FLOATS)),
            "/buffers/a~1b",
            Artifact(buffers={"w": weight()}, files=safetensors(w=FLOATS, more=FLOATS)),
        ),
    ],
    "K1019": [
        (
            Artifact(buffers={"w": weight("bf16")}, files=safetensors(w=FLOATS)),
            "/buffers/w/dtype",
            Artifact(buffers={"w": weight("f32")}, files=safetensors(w=FLOATS)),
        ),
        (
            Artifact(buffers={"w": weight("f32")}, files=safetensors(w=np.zeros((2, 3)))),
            "/buffers/w/dtype",
            Artifact(buffers={"w": weight("f32")}, files=safetensors(w=FLOATS)),
        ),
    ],
    "K1021": [
        (
            Artifact((step(**pinned("k.so", HOST), **{attribute: value}),), SO),
            f"/kernels/k0/impl/steps/0/{attribute}",
            Artifact((step(**pinned("k.so", HOST)),), SO),
        )
        for attribute, value in (("cooperative", True), ("cluster", [1, 1, 1]))
    ],
    "K1020": [
        (
            Artifact(buffers={"w": weight(shape=(3, 2))}, files=safetensors(w=FLOATS)),
            "/buffers/w/shape",
            Artifact(buffers={"w": weight(shape=(2, 3))}, files=safetensors(w=FLOATS)),
        ),
        (
            Artifact(buffers={"w": weight(shape=(6,))}, files=safetensors(w=FLOATS)),
            "/buffers/w/shape",
            Artifact(buffers={"w": {**weight(), "shape": [2, {"mul": [3, 1]}]}}, files=safetensors(w=FLOATS)),
        ),
    ],
}
EACH = [pytest.param(code, *case, id=f"{code}-{i}") for code, cases in CASES.items() for i, case in enumerate(cases)]


def test_every_code_has_a_case() -> None:
    assert CASES.keys() == CODES.keys()
    assert all(code.id == name and isinstance(code.example, FolderExample) for name, code in CODES.items())


@pytest.mark.parametrize(("code", "failing", "pointer", "fixed"), EACH)
def test_code(tmp_path: Path, code: str, failing: Artifact, pointer: str, fixed: Artifact) -> None:
    diagnostics = failing.resolve(tmp_path / "failing").diagnostics
    assert [(diagnostic.code, diagnostic.pointer) for diagnostic in diagnostics] == [(code, pointer)]
    assert diagnostics[0].message.isprintable()
    assert diagnostics[0].help
    assert fixed.resolve(tmp_path / "fixed").diagnostics == ()


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    artifact = Artifact(
        (step("gone"), step(block=[512, 1, 1]), step(params=[*SCALE[:2], "i64"])),
        {**K, **safetensors(w=FLOATS)},
        buffers={"w": weight("bf16", (3,)), "v": weight()},
        options={"target": "sm_80"},
    )
    found = [diagnostic.code for diagnostic in artifact.resolve(tmp_path / "a").diagnostics]
    assert found == ["K1005", "K1011", "K1008", "K1015", "K1019", "K1020", "K1018"]


def test_files_for_another_target_are_reported_together_at_the_first(tmp_path: Path) -> None:
    files = {"kernels/a.cubin": SM80, "kernels/b.cubin": SM80, "kernels/c.cubin": SM80}
    steps = tuple(step(cubin=name.removeprefix("kernels/")) for name in files)
    (found,) = Artifact(steps, files, options={"target": "sm_90"}).resolve(tmp_path / "a").diagnostics
    assert (found.code, found.pointer) == ("K1015", "/kernels/k0/impl/steps/0/symbol")
    assert found.message == "3 kernel files are built for sm_80, and the target is sm_90"


def test_what_resolves(tmp_path: Path) -> None:
    artifact = Artifact(
        (step(), step("extern:copy", ONE), step("tiled", ONE)),
        {**K, **safetensors(w=FLOATS, more=FLOATS)},
        buffers={"w": weight(), "x": {"dtype": "f32", "shape": [1], "class": "input"}},
        options={"target": "sm_90"},
    )
    resolution = artifact.resolve(tmp_path / "a")
    assert resolution.diagnostics == ()
    assert resolution.steps.keys() == {("k0", 0), ("k2", 0)}
    assert {step.kernel.symbol for step in resolution.steps.values()} == {"scale", "tiled"}
    assert resolution.kind == "cubin"
    assert [(module.name, module.image) for module in resolution.modules] == [("k.cubin", SM90)]
    assert resolution.steps["k0", 0].module is resolution.modules[0]
    assert resolution.weights is not None
    assert resolution.weights.keys() == {"w", "more"}


def test_a_host_folder_resolves(tmp_path: Path) -> None:
    resolution = Artifact((step(**pinned("k.so", HOST)),), SO).resolve(tmp_path / "a", target=BASELINE)
    assert (resolution.diagnostics, resolution.kind, resolution.weights) == ((), "host", None)


def test_modules_with_one_symbol_are_distinguished_by_layout(tmp_path: Path) -> None:
    artifact = Artifact((step(), step(params=["out ptr", "i64"])), {**K, "kernels/l.cubin": OTHER})
    resolution = artifact.resolve(tmp_path / "a")
    assert resolution.diagnostics == ()
    assert [step.module.name for step in resolution.steps.values()] == ["k.cubin", "l.cubin"]


def test_ambiguity_names_the_files_and_asks_for_a_pin(tmp_path: Path) -> None:
    (error,) = Artifact((step(),), {**K, "kernels/l.cubin": SM80}).resolve(tmp_path / "a").diagnostics
    assert "kernels/k.cubin, kernels/l.cubin" in error.message
    assert "sha256" in error.help


def test_only_modules_that_a_step_needs_are_kept(tmp_path: Path) -> None:
    artifact = Artifact((step("tiled", ONE),), {**K, "kernels/l.cubin": OTHER, "kernels/z.so": HOST})
    assert [module.name for module in artifact.resolve(tmp_path / "a").modules] == ["k.cubin"]


def test_files_beside_pinned_ones_are_not_read(tmp_path: Path) -> None:
    artifact = Artifact((step(cubin="k.cubin"),), {**K, "kernels/README": b"text"}, plant=link("kernels/l"))
    assert artifact.resolve(tmp_path / "a").diagnostics == ()


def test_a_pin_may_be_written_in_capitals(tmp_path: Path) -> None:
    pin = hashlib.sha256(SM90).hexdigest().upper()
    assert Artifact((step(cubin="k.cubin", sha256=pin),), K).resolve(tmp_path / "a").diagnostics == ()


def test_a_broken_file_is_reported_once_and_each_wrong_pin_of_it(tmp_path: Path) -> None:
    pin = pinned("k.cubin", b"")
    artifact = Artifact((step(**pin), step(**pin), step(cubin="k.cubin", sha256="0" * 64)), K)
    assert [diagnostic.pointer for diagnostic in artifact.resolve(tmp_path / "a").diagnostics] == [
        "/kernels/k0/impl/steps/0/sha256",
        "/kernels/k2/impl/steps/0/sha256",
    ]


def test_the_callers_own_bound_on_shared_memory_counts(tmp_path: Path) -> None:
    artifact = Artifact(
        (step("tiled", ONE, shared_mem={"mul": [{"sym": "n"}, 1024]}),), K, symbols={"n": {"max": 1024}}
    )
    assert artifact.resolve(tmp_path / "a", shared_mem={("k0", 0): 65536}).diagnostics == ()
    (error,) = artifact.resolve(tmp_path / "b", shared_mem={("k0", 0): 228353}).diagnostics
    assert "4,096 bytes of static" in error.message
    assert "228,353 more" in error.message
    assert "at most 228,352 bytes" in error.help


def test_weights_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(save({"w": FLOATS}))
    resolution = Artifact(buffers={"w": weight()}).resolve(tmp_path / "a", weights=tmp_path / "w")
    assert resolution.diagnostics == ()
    assert resolution.weights is not None


def test_a_target_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownTarget):
        Artifact().resolve(tmp_path / "a", target="h100")


@pytest.mark.parametrize(
    "unruly",
    [
        step(shared_mem={"sym": "unknown"}),
        step(shared_mem={"ceil_div": [4, 0]}),
        step(block=[0, 0, 0]),
        step(block=[-5, 2**62, 2**62]),
        step(symbol=""),
        step(cubin=""),
        step(cubin=".."),
        step(cubin="\x1b[31m"),
        step(cubin="k.cubin", sha256="\x1b[31m"),
        step(sha256="ab"),
        step(params=[]),
    ],
)
def test_what_other_rules_refuse_does_not_break_this_one(tmp_path: Path, unruly: dict[str, Any]) -> None:
    artifact = Artifact((unruly,), {**K, **safetensors(w=FLOATS)}, buffers={"w": {**weight(), "shape": ["unknown"]}})
    for diagnostic in artifact.resolve(tmp_path / "a").diagnostics:
        assert diagnostic.message.isprintable()


FIRST = ("kernels", "k0", "impl", "steps", 0)


@pytest.mark.parametrize(
    ("refused", "reported"),
    [
        ((), {"K1001", "K1011", "K1020"}),
        ((*FIRST, "block", 1), {"K1001", "K1020"}),
        ((*FIRST, "args", 0), {"K1001", "K1011", "K1020"}),
        ((*FIRST, "sha256"), {"K1001", "K1020"}),
        (("kernels", "k1"), {"K1011", "K1020"}),
        (("kernels", "k1", "params", 0), {"K1001", "K1011", "K1020"}),
        (("buffers", "w", "shape", 0, "mul", 1), {"K1001", "K1011"}),
        (("buffers", "w", "dtype"), {"K1001", "K1011", "K1020"}),
        (("buffers", "w"), {"K1001", "K1011"}),
    ],
)
def test_what_is_refused_is_not_judged_again_and_all_else_is(
    tmp_path: Path, refused: tuple[str | int, ...], reported: set[str]
) -> None:
    artifact = Artifact(
        (step(block=[512, 1, 1]), step(cubin="gone.cubin")),
        {**K, **safetensors(w=FLOATS)},
        buffers={"w": weight(shape=(3, 2))},
    )
    diagnostics = artifact.resolve(tmp_path / "a", refused=[refused]).diagnostics
    assert {diagnostic.code for diagnostic in diagnostics} == reported


def test_a_bad_file_is_reported_at_the_first_step_that_is_not_refused(tmp_path: Path) -> None:
    artifact = Artifact((step(""), step()), {**K, "kernels/l.cubin": b"cut"})
    (error,) = artifact.resolve(tmp_path / "a", refused=[(*FIRST, "symbol")]).diagnostics
    assert (error.code, error.pointer) == ("K1004", "/kernels/k1/impl/steps/0/symbol")


def test_layouts_of_declared_params_are_those_of_the_compiler(tmp_path: Path) -> None:
    """Forty kernels of random scalars and pointers, compiled, fit the same lists as a manifest declares them."""
    types = {
        "i32": "int",
        "u32": "unsigned",
        "i64": "long long",
        "f32": "float",
        "u8": "unsigned char",
        "out ptr": "char *",
    }
    choose = random.Random(7)
    lists = [choose.choices(list(types), k=choose.randrange(12)) for _ in range(40)]
    heads = (", ".join(f"{types[t]} p{i}" for i, t in enumerate(params)) for params in lists)
    source = "\n".join(f'extern "C" __global__ void k{i}({head}) {{}}' for i, head in enumerate(heads))
    image = cubin(source, "sm_90a")
    artifact = Artifact(tuple(step(f"k{i}", params) for i, params in enumerate(lists)), {"kernels/k.cubin": image})
    resolution = artifact.resolve(tmp_path / "a")
    assert resolution.diagnostics == ()
    for index, params in enumerate(lists):
        assert resolution.steps[f"k{index}", 0].kernel.layout == layout([Param.parse(text) for text in params])
