"""The cache of matrix products' algorithms: one file for all processes, GPUs and library versions."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.device.base import DeviceError
from kern.device.cuda.matmul_cache import ALGORITHM_BYTES, MAX_BYTES, AlgorithmCache, Shape, alignment
from kern.files.user_cache import CacheIgnored

SHAPE = Shape.of("cublaslt_bf16_tn", 1, 2560, 4096, 0x1000, 0x2010, 0x3002)


def algorithm(first: int) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * ALGORITHM_BYTES)(*range(first, first + ALGORITHM_BYTES))


def kept(cache: AlgorithmCache, shape: Shape) -> bytes | None:
    found = cache.get(shape)
    return None if found is None else bytes(found)


def test_an_entry_is_read_by_the_next_object(tmp_path: Path) -> None:
    path = tmp_path / "kern" / "cublaslt.json"
    first = AlgorithmCache("H200", 130000, path)
    assert first.get(SHAPE) is None
    first.put(SHAPE, algorithm(3))
    assert kept(first, SHAPE) == kept(AlgorithmCache("H200", 130000, path), SHAPE) == bytes(algorithm(3))
    first.put(SHAPE, algorithm(9))
    assert kept(AlgorithmCache("H200", 130000, path), SHAPE) == bytes(algorithm(9))
    assert [each.name for each in path.parent.iterdir() if each.suffix != ".lock"] == [path.name]


def test_entries_depend_on_gpu_library_version_shape_and_alignment(tmp_path: Path) -> None:
    path = tmp_path / "cublaslt.json"
    AlgorithmCache("H200", 130000, path).put(SHAPE, algorithm(0))
    for other in (AlgorithmCache("H100", 130000, path), AlgorithmCache("H200", 130100, path)):
        assert other.get(SHAPE) is None
    same = AlgorithmCache("H200", 130000, path)
    for changed in (
        Shape.of("cublaslt_bf16_tn_acc", 1, 2560, 4096, 0x1000, 0x2010, 0x3002),
        Shape.of("cublaslt_bf16_tn", 2, 2560, 4096, 0x1000, 0x2010, 0x3002),
        Shape.of("cublaslt_bf16_tn", 1, 2560, 4096, 0x1000, 0x2010, 0x3004),
    ):
        assert same.get(changed) is None


def test_processes_do_not_lose_each_others_entries(tmp_path: Path) -> None:
    path = tmp_path / "cublaslt.json"
    shapes = [Shape("cublaslt_bf16_tn", m, 8, 8, 256, 256, 256) for m in range(1, 33)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda shape: AlgorithmCache("H200", 1, path).put(shape, algorithm(shape.m)), shapes))
    cache = AlgorithmCache("H200", 1, path)
    assert [kept(cache, shape) for shape in shapes] == [bytes(algorithm(shape.m)) for shape in shapes]


DAMAGED = [b"", b"junk", b"\xff\xfe", b"[1]", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b" " * (MAX_BYTES + 1)]


@pytest.mark.parametrize("content", DAMAGED, ids=[repr(content[:8]) for content in DAMAGED])
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cublaslt.json"
    path.write_bytes(content)
    with pytest.warns(CacheIgnored, match=r"cublaslt\.json is not used: it"):
        cache = AlgorithmCache("H200", 1, path)
    assert cache.get(SHAPE) is None
    with pytest.warns(CacheIgnored):
        cache.put(SHAPE, algorithm(1))
    assert kept(AlgorithmCache("H200", 1, path), SHAPE) == bytes(algorithm(1))


@pytest.mark.parametrize("value", [7, None, "ab", "zz" * ALGORITHM_BYTES, "ab" * (ALGORITHM_BYTES + 1)])
def test_a_damaged_entry_is_ignored(tmp_path: Path, value: object) -> None:
    path = tmp_path / "cublaslt.json"
    path.write_text(json.dumps({f"H200|1|{SHAPE}": value}))
    assert AlgorithmCache("H200", 1, path).get(SHAPE) is None


def test_a_cache_that_cannot_be_written_is_an_error_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "kern" / "cublaslt.json"
    with pytest.raises(DeviceError, match=r"cannot be written to .*XDG_CACHE_HOME"):
        AlgorithmCache("H200", 1, path).put(SHAPE, algorithm(0))


USE = """
import ctypes, sys, warnings
from pathlib import Path
from kern.cli.errors import show_warnings
from kern.device.cuda.matmul_cache import ALGORITHM_BYTES, AlgorithmCache, Shape
show_warnings()
shape = Shape("op", 1, 2, 3, 4, 5, 6)
cache = AlgorithmCache("H200", 1, Path(sys.argv[1]))
print(cache.get(shape) is None)
cache.put(shape, (ctypes.c_ubyte * ALGORITHM_BYTES)(7))
print(bytes(cache.get(shape))[0], AlgorithmCache("H200", 1, Path(sys.argv[1])).get(shape) is not None)
"""


def used(path: Path) -> list[str]:
    """What a process with little memory that uses the cache prints, and the one line that it warns with."""
    limit = 2**30
    done = subprocess.run(
        [sys.executable, "-c", USE, str(path)],
        capture_output=True, text=True, check=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert all(line.startswith("kern: warning: ") for line in done.stderr.splitlines())
    return [*done.stdout.split(), *sorted(set(done.stderr.splitlines()))]


def test_a_fifo_and_a_link_to_an_endless_file_are_ignored_with_a_warning_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cublaslt.json"
    os.mkfifo(path)
    line = f"kern: warning: {path} is not used: it is not a regular file"
    assert used(path) == ["True", "7", "True", line]
    path.unlink()
    path.symlink_to("/dev/zero")
    assert used(path) == ["True", "7", "True", f"kern: warning: {path} is not used: it is a link"]
    assert used(path) == ["False", "7", "True"]


def test_a_lock_that_is_a_link_is_left_alone_and_nothing_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "cublaslt.lock").symlink_to(target)
    lock = tmp_path / "cublaslt.lock"
    line = f"kern: warning: a matrix product's algorithm is not kept: {lock} is not used: it is a link"
    assert used(tmp_path / "cublaslt.json") == ["True", "7", "False", line]
    assert target.read_text() == "precious"


def test_the_cache_does_not_outgrow_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kern.device.cuda.matmul_cache.MAX_BYTES", 1_000)
    path = tmp_path / "cublaslt.json"
    cache = AlgorithmCache("H200", 1, path)
    for m in range(1, 20):
        cache.put(SHAPE._replace(m=m), algorithm(m))
        assert kept(AlgorithmCache("H200", 1, path), SHAPE._replace(m=m)) == bytes(algorithm(m))
    assert path.stat().st_size <= 1_000


def test_the_users_cache_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    AlgorithmCache("H200", 1).put(SHAPE, algorithm(5))
    assert (tmp_path / "kern" / "cublaslt.json").exists()


@given(st.integers(1, 2**48))
def test_alignment_divides_and_is_the_largest_up_to_256(address: int) -> None:
    found = alignment(address)
    assert address % found == 0
    assert found == 256 or address % (2 * found)


@given(st.integers(1, 2**31))
def test_one_entry_serves_all_m_from_half_a_power_of_two_on(m: int) -> None:
    rounded = SHAPE._replace(m=m).rounded_up()
    assert rounded.m & (rounded.m - 1) == 0
    assert rounded.m // 2 < m <= rounded.m
    assert rounded == SHAPE._replace(m=rounded.m)
