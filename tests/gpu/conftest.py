"""Models built for the GPU that is there, each once a session; without a GPU, the reason to skip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import PRESETS, Family, TransformerConfig
from kern.checkpoints.fetch import SMOLLM2, FetchError, fetch
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from support.hf_folder import save_model
from support.tiny import SEED

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

USERS_CACHE = os.environ.get("XDG_CACHE_HOME")

WIDE: dict[Family, TransformerConfig] = {
    "qwen3": replace(PRESETS["qwen3"]["qwen3-4b"], layers=3, max_positions=4096),
    # Llama 3.2 1B, without its scaling of the rotation.
    "llama": replace(
        PRESETS["llama"]["tiny"],
        layers=2,
        hidden=2048,
        ffn=8192,
        heads=32,
        kv_heads=8,
        vocabulary=128256,
        rope_theta=5e5,
        norm_eps=1e-5,
    ),
}
"""The widths of real models, with a few layers."""


@dataclass(frozen=True)
class Model:
    """One model in both forms: a Hugging Face folder, and the artifact built from it."""

    checkpoint: Path
    artifact: Path


Kern = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def algorithms_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the session's own: no algorithm is read from the user's, or left there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def architecture(gpu: CudaDevice) -> str:
    """The GPU's target with all of its instructions: `sm_90a`."""
    return f"{gpu.target}a" if int(gpu.target.removeprefix("sm_")) >= 90 else gpu.target


@pytest.fixture(scope="session")
def tiny_folder(gpu: CudaDevice, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A family, and how many sequences at most → a tiny random model's folder, called by its family."""

    @cache
    def folder(family: str, sequences: int = 1) -> Path:
        path = tmp_path_factory.mktemp(f"tiny{sequences}") / family
        build(BuildOptions(family, random=True, seed=SEED, config="tiny", target="auto", sequences=sequences), path)
        return path

    return folder


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def tiny(request: pytest.FixtureRequest, tiny_folder: Callable[..., Path]) -> Path:
    """A tiny random model's folder, of each family in turn."""
    return tiny_folder(request.param)


@pytest.fixture(scope="session")
def model(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Family, str], Model]:
    """A family and `tiny` or `wide` → the model with random weights."""

    @cache
    def of(family: Family, size: str) -> Model:
        place = tmp_path_factory.mktemp(f"{size}-{family}")
        config = WIDE[family] if size == "wide" else PRESETS[family]["tiny"]
        checkpoint = save_model(place / "checkpoint", RandomCheckpoint(config, SEED))
        build(BuildOptions(family, checkpoint=checkpoint, target=architecture), place / family)
        return Model(checkpoint, place / family)

    return of


@pytest.fixture(scope="session")
def smollm2_gguf(gpu: CudaDevice) -> Path:
    """SmolLM2's GGUF file: the one that KERN_SMOLLM2_GGUF names, else that of the user's cache."""
    given = os.environ.get("KERN_SMOLLM2_GGUF")
    if given is not None:
        return Path(given)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_CACHE_HOME")
        if USERS_CACHE is not None:
            patch.setenv("XDG_CACHE_HOME", USERS_CACHE)
        try:
            return fetch(SMOLLM2, lambda done, total: None)
        except FetchError as error:
            pytest.skip(f"SmolLM2 cannot be had: {error}")


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path, architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's folder."""
    folder = tmp_path_factory.mktemp("smollm2") / "smollm2"
    build(BuildOptions("smollm2", checkpoint=smollm2_gguf, target=architecture), folder)
    return folder


@pytest.fixture(scope="session")
def kern() -> Kern:
    """The command in its own process, which ends with it if the GPU fails: kern("run", folder, CUDA_…="")."""

    def call(*arguments: object, under: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        command = [*under, sys.executable, "-m", "kern", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=150, env={**os.environ, **environment}
        )

    return call
