"""What several test packages share, made once a session: model folders, and the GPU or the reason to skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.fetch import SMOLLM2, FetchError, fetch
from kern.device.base import DeviceUnavailable
from kern.models import kernel_set
from support import suite_record
from support.toy import toy_artifact

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice


def pytest_addoption(parser: pytest.Parser) -> None:
    suite_record.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("kern", deadline=None)  # an example may take long on a busy machine
    settings.load_profile("kern")
    suite_record.register(config)


SMOLLM2_DRAFT = Path(__file__).parents[1] / "assets" / "smollm2-draft"


@pytest.fixture(scope="session", autouse=True)
def usual_umask() -> Iterator[None]:
    """Files of a cache that a group may write are not trusted, and tests put some there."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's folder. Tests that change files make their own."""
    return toy_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture(scope="session")
def compiled_once() -> Iterator[None]:
    """Host kernels are compiled once for all the folders that are built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_set, "compile_host_modules", cache(kernel_set.compile_host_modules))
        yield


@pytest.fixture(scope="session", params=["llama", "qwen3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """A tiny random model's folder, of each family in turn."""
    folder = tmp_path_factory.mktemp("tiny") / str(request.param)
    build(BuildOptions(request.param, random=True, seed=7, config="tiny", target="host"), folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2's GGUF file in the cache."""
    try:
        return fetch(SMOLLM2, lambda done, total: None)
    except FetchError as error:
        pytest.skip(f"SmolLM2 cannot be had: {error}")


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """SmolLM2's folder."""
    folder = tmp_path_factory.mktemp("smollm2") / "smollm2"
    build(BuildOptions("smollm2", checkpoint=smollm2_gguf, target="host"), folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_draft() -> Path:
    """SmolLM2's trained draft, which is in the repository and not in what is packaged."""
    if not SMOLLM2_DRAFT.is_dir():
        pytest.skip("the trained draft is in the repository alone: assets/smollm2-draft")
    return SMOLLM2_DRAFT


@pytest.fixture(scope="session")
def smollm2_spec(
    smollm2_gguf: Path, smollm2_draft: Path, tmp_path_factory: pytest.TempPathFactory, compiled_once: None
) -> Path:
    """SmolLM2's folder with its draft."""
    folder = tmp_path_factory.mktemp("spec") / "smollm2"
    build(BuildOptions("smollm2", checkpoint=smollm2_gguf, draft=smollm2_draft, target="host"), folder)
    return folder


@pytest.fixture(scope="session")
def gpu() -> Iterator[CudaDevice]:
    """The first GPU, kept open for the session: so that its context outlives every other user's."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    from kern.device.cuda.device import CudaDevice

    try:
        device = CudaDevice(0)
    except DeviceUnavailable as error:
        pytest.skip(f"no GPU: {error.message}")
    yield device
    device.close()
