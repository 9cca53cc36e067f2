"""What is published: the wheel has all that kern needs to build and run, and is installed without the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1]


def python(*arguments: object, folder: Path, path: Path | None = None) -> str:
    """Run Python in `folder`, with packages from `path` first; what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(wheel: Path) -> set[str]:
    """The names of the files in a wheel that belong to the package itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("kern/")}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("published")
    python("-m", "hatchling", "build", "-d", folder, folder=SOURCE)
    return folder


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_has_every_file_of_the_package(published: Path) -> None:
    package = SOURCE / "src"
    sources = {
        path.relative_to(package).as_posix()
        for path in (package / "kern").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in sources} >= {".py", ".c", ".h", ".cu", ".cuh", ".typed"}
    assert files(wheel_in(published)) == sources


def test_the_source_distribution_gives_the_same_wheel(published: Path, tmp_path: Path) -> None:
    (archive,) = published.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=unpacked)
    assert files(wheel_in(tmp_path)) == files(wheel_in(published))


@pytest.mark.slow
def test_an_installed_wheel_builds_and_runs_a_model(published: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site)
    python(*install, wheel_in(published), folder=tmp_path)
    origin = python("-c", "import kern; print(kern.__file__)", folder=tmp_path, path=site)
    assert Path(origin.strip()) == site / "kern" / "__init__.py"
    model = ("llama", "--random", "--config", "tiny", "--target", "host")
    python("-m", "kern", "build", *model, "-o", "tiny", folder=tmp_path, path=site)
    assert "ok" in python("-m", "kern", "verify", "tiny", folder=tmp_path, path=site)
    run = ("run", "tiny", "--prompt-ids", "1,2,3", "--max-tokens", "4", "--ignore-stop", "--quiet")
    assert len(python("-m", "kern", *run, folder=tmp_path, path=site).split()) == 4
