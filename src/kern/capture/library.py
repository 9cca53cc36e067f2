"""Compiling the recorder with the system's C compiler, once for each version of it and of the headers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kern.capture.errors import RecorderNotBuilt
from kern.files.regular_file import whole_file
from kern.files.user_cache import NAME_ANOTHER, UntrustedCache, make_cache, open_trusted, user_cache
from kern.toolchain.cc import CompilationFailed, compile_all
from kern.toolchain.cuda_headers import Toolkit

SOURCES: Final = Path(__file__).parent / "recorder"
_FLAGS: Final = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"),
    "-Wl,-z,nodelete",  # CUPTI calls it as long as the process lives
)
_HEADERS: Final = ("cuda.h", "cupti_callbacks.h", "cupti_driver_cbid.h", "generated_cuda_meta.h")
_HASH_BYTES: Final = 64


def recorder_library(toolkit: Toolkit, compiler: Sequence[str]) -> Path:
    """The recorder as a shared object in the user's cache, compiled by `compiler` if it is not there yet.

    It is loaded into the recorded program, so what is there is taken only where nobody else may have written it and its
    bytes have the hash that was kept with them; else it is compiled again.
    Raises RecorderNotBuilt, CompilerMissing, NoCacheFolder, and UntrustedCache for the cache's folder.
    """
    folder = user_cache()
    try:
        make_cache(folder)
        library = folder / f"recorder-{_key(toolkit, compiler)}.so"
        hash = library.with_suffix(".sha256")
        if _is_kept(library, hash):
            return library
        image = _compile(toolkit, compiler)
        for path, content, mode in ((hash, hashlib.sha256(image).hexdigest().encode(), 0o644), (library, image, 0o755)):
            with whole_file(path, mode) as file:
                file.write(content)
    except OSError as error:
        raise RecorderNotBuilt(f"the recorder cannot be kept in {folder}: {error.strerror}", NAME_ANOTHER) from error
    return library


def _is_kept(library: Path, hash: Path) -> bool:
    try:
        with open_trusted(library) as file, open_trusted(hash) as its_hash:
            return its_hash.read(_HASH_BYTES).decode("ascii") == hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, UntrustedCache, UnicodeDecodeError):
        return False


def _key(toolkit: Toolkit, compiler: Sequence[str]) -> str:
    """A hash of all that the library is made of."""
    digest = hashlib.sha256("\0".join((*compiler, *_FLAGS)).encode(errors="surrogateescape"))
    headers = [folder / name for folder in toolkit.includes for name in _HEADERS if (folder / name).is_file()]
    for path in (*sorted(SOURCES.iterdir()), *headers):
        digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(toolkit: Toolkit, compiler: Sequence[str]) -> bytes:
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    arguments = (*_FLAGS, *(f"-I{folder}" for folder in (SOURCES, *toolkit.includes)), *sources, "-ldl")
    try:
        (image,) = compile_all(
            compiler, [(f"the recorder against the headers in {toolkit.includes[0]}", arguments)], ""
        )
    except CompilationFailed as error:
        raise RecorderNotBuilt(error.message, "it needs gcc or clang, and the headers of CUDA 12.8 or later") from error
    return image
