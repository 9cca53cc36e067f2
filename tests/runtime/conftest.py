"""The toy artifact, and one of many inputs, written once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kern
from kern.runtime.executable import Executable
from support.inputs import write_inputs
from support.toy import toy_artifact


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's folder. Tests that change files make their own."""
    return toy_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture(scope="session")
def inputs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs of every dtype."""
    return write_inputs(tmp_path_factory.mktemp("inputs") / "folder")


@pytest.fixture
def executable(inputs_folder: Path) -> Iterator[Executable]:
    """It, loaded."""
    with kern.load(inputs_folder, sharing=False) as loaded:
        yield loaded
