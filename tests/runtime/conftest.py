"""The toy artifact, written once."""

from pathlib import Path

import pytest

from support.toy import toy_artifact


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's folder. Tests that change files make their own."""
    return toy_artifact(tmp_path_factory.mktemp("toy") / "artifact")
