"""Qwen3-4B on vLLM's kernels on a GPU, compared with the same weights on our own: the same tokens, up to near-ties.

The recording is made on the machine itself (`kern capture` of vLLM with TRITON_ATTN on the shape of Qwen3-4B), and
KERN_RECORDING names its folder. Both builds take about 8 GB of disk, and as much of the GPU's memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import preset
from kern.engine import Generator, score
from kern.manifest.reading import read
from kern.manifest.writing import write
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.verification.verify import verify
from support.agreement import CONTENDERS, F32
from support.host_driven import HostDriven

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

CONFIG = "qwen3-4b"
COUNT = 64
WITHIN = 0.04
"""Of a row of logits: what two ways of rounding to bf16 may be apart. Ours keeps the residual stream in float32."""


@pytest.fixture(scope="module")
def recording() -> Path:
    """The recording's folder."""
    given = os.environ.get("KERN_RECORDING")
    if given is None:
        pytest.skip(f"KERN_RECORDING names no recording of vLLM running {CONFIG} with TRITON_ATTN")
    return Path(given)


@dataclass(frozen=True)
class Loaded:
    """An artifact on the GPU, where every buffer can be read."""

    folder: Path
    executable: Executable
    generators: dict[tuple[int | None, bool], Generator]

    def generator(self, chunk: int | None = None, *, eager: bool = False) -> Generator:
        """One that waits for each step, so that its logits can be read."""
        if (chunk, eager) not in self.generators:
            tokenizer = Tokenizer.load(self.folder)
            made = HostDriven(self.executable, tokenizer, chunk=chunk, eager=eager)
            self.generators[chunk, eager] = made
        return self.generators[chunk, eager]

    def steps(self, ids: Sequence[int], count: int, **options: Any) -> tuple[list[int], F32]:
        """The ids that follow, and the logits that each was chosen from."""
        generation = self.generator(**options).generate(ids, max_tokens=count, ignore_stop=True)
        logits = [self.executable.read("logits", {"seqs": 1})[0] for _ in generation]
        return generation.output_ids, np.array(logits)


@pytest.fixture(scope="module")
def on_gpu(gpu: CudaDevice) -> Iterator[Callable[..., Loaded]]:
    """A folder → the artifact, loaded until the module's end."""
    held: list[Executable] = []

    def loaded(folder: Path, weights: Path | None = None) -> Loaded:
        held.append(load(folder, device="cuda", capacity=1024, sharing=False, weights=weights))
        return Loaded(folder, held[-1], {})

    yield loaded
    for executable in held:
        executable.close()


@pytest.fixture(scope="module")
def built(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact on recorded kernels."""
    folder = tmp_path_factory.mktemp("recorded") / "qwen3"
    build(BuildOptions("qwen3", random=True, config=CONFIG, capture=recording), folder)
    return folder


@pytest.fixture(scope="module")
def recorded(built: Path, on_gpu: Callable[..., Loaded]) -> Loaded:
    """It, on the GPU."""
    return on_gpu(built)


@pytest.fixture(scope="module")
def own(
    recording: Path, architecture: str, tmp_path_factory: pytest.TempPathFactory, on_gpu: Callable[..., Loaded]
) -> Loaded:
    """The same weights on our own kernels."""
    folder = tmp_path_factory.mktemp("own") / "qwen3"
    build(BuildOptions("qwen3", random=True, config=CONFIG, target=architecture), folder)
    return on_gpu(folder)


def prompt(length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(length).integers(0, preset("qwen3", CONFIG).vocabulary, length).tolist()
    return ids


def assert_alike(found: Loaded, usual: Loaded, ids: Sequence[int], label: str, **options: Any) -> None:
    """All `COUNT` choices after `ids` are the usual ones, up to near-ties; each of those is printed with its margin.

    Where two runs part, the one goes on from what the other chose: so every step is compared, not the first few.
    """
    chosen, rows = usual.steps(ids, COUNT)
    done = 0
    while done < COUNT:
        given, logits = found.steps([*ids, *chosen[:done]], COUNT - done, **options)
        parted = next((at for at, id in enumerate(given) if id != chosen[done + at]), len(given) - 1)
        apart = logits[: parted + 1] - rows[done : done + parted + 1]
        apart -= apart.mean(axis=1, keepdims=True)
        centred = rows[done : done + parted + 1] - rows[done : done + parted + 1].mean(axis=1, keepdims=True)
        relative = np.linalg.norm(apart, axis=1) / np.linalg.norm(centred, axis=1)
        row = rows[done + parted]
        if given[parted] != chosen[done + parted]:
            contenders = np.argpartition(row, -CONTENDERS)[-CONTENDERS:]
            margin, noise = row.max() - row[given[parted]], np.abs(apart[parted][contenders]).max()
            print(f"{label}: parted at step {done + parted}, margin {margin:.4f}, logits {noise:.4f} apart")
        print(f"{label}: steps {done} to {done + parted}, rows apart by {relative.max():.2%} at most")
        assert relative.max() <= WITHIN
        done += parted + 1


def test_the_artifact_is_valid_for_this_gpu(built: Path, gpu: CudaDevice) -> None:
    assert verify(built, gpu.target).diagnostics == ()


@pytest.mark.parametrize("length", [1, 5, 16, 64, 709])
def test_64_greedy_tokens_are_those_of_our_own_kernels(recorded: Loaded, own: Loaded, length: int) -> None:
    assert_alike(recorded, own, prompt(length), f"{length} tokens")


@pytest.mark.parametrize("chunk", [1, 63, 300])
def test_the_chunk_of_the_prefill_does_not_matter(recorded: Loaded, own: Loaded, chunk: int) -> None:
    assert_alike(recorded, own, prompt(300), f"chunks of {chunk}", chunk=chunk)


def test_graphs_and_single_launches_do_the_same_arithmetic(recorded: Loaded) -> None:
    ids, logits = recorded.steps(prompt(100), COUNT)
    again, eager = recorded.steps(prompt(100), COUNT, eager=True)

    assert again == ids
    assert eager.tobytes() == logits.tobytes()


def test_tokens_that_stay_on_the_gpu_are_those_that_pass_the_host(recorded: Loaded) -> None:
    ids, _ = recorded.steps(prompt(100), COUNT)
    fed = Generator(recorded.executable, Tokenizer.load(recorded.folder))

    assert [token.id for token in fed.generate(prompt(100), max_tokens=COUNT, ignore_stop=True)] == ids


def test_the_score_is_that_of_our_own_kernels(recorded: Loaded, own: Loaded) -> None:
    found, usual = (
        score(each.executable, Tokenizer.load(each.folder).settings, prompt(300)).nll for each in (recorded, own)
    )

    print(f"nll {found:.4f}, on our own kernels {usual:.4f}")
    assert found == pytest.approx(usual, abs=0.02)


def test_our_own_kernel_takes_the_place_of_a_recorded_one(
    recorded: Loaded, own: Loaded, on_gpu: Callable[..., Loaded], tmp_path: Path
) -> None:
    script = Path(__file__).parents[2] / "examples" / "kernels-from-vllm" / "replace.py"
    subprocess.run([sys.executable, script, recorded.folder, tmp_path / "replaced"], check=True)

    replaced = on_gpu(tmp_path / "replaced")

    assert_alike(replaced, own, prompt(64), "our own add and norm")
    assert_alike(replaced, own, prompt(600), "our own add and norm, 600 tokens")


def test_cublaslts_products_take_the_place_of_our_own(
    recorded: Loaded, own: Loaded, on_gpu: Callable[..., Loaded], tmp_path: Path
) -> None:
    manifest = read((recorded.folder / "manifest.json").read_bytes()).manifest
    assert manifest is not None
    product, logits = manifest.kernels["matmul"], manifest.kernels["matmul_f32"]
    kernels = {f"{which}_matmul": product for which in ("qkv", "output", "gate_up", "down")} | {"logits_matmul": logits}
    assert all(manifest.kernels[name].params == kernel.params for name, kernel in kernels.items())
    swapped = manifest.model_copy(update={"kernels": {**manifest.kernels, **kernels}})
    shutil.copytree(recorded.folder / "kernels", tmp_path / "kernels")
    shutil.copy(recorded.folder / "text.json", tmp_path)
    (tmp_path / "manifest.json").write_text(write(swapped))

    mixed = on_gpu(tmp_path, recorded.folder / "weights.safetensors")

    assert_alike(mixed, own, prompt(64), "cublasLt's products")
