"""A folder with inputs of every dtype, written once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kern
from kern.runtime.executable import Executable
from support.inputs import write_inputs


@pytest.fixture(scope="session")
def inputs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs of every dtype."""
    return write_inputs(tmp_path_factory.mktemp("inputs") / "folder")


@pytest.fixture
def executable(inputs_folder: Path) -> Iterator[Executable]:
    """It, loaded."""
    with kern.load(inputs_folder, sharing=False) as loaded:
        yield loaded
