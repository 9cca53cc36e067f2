"""The kernel files of a folder, each read, hashed and described at most once."""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

from kern.artifact.errors import ArtifactError, FileTooLarge
from kern.artifact.folder import ArtifactFolder
from kern.artifact.types import ModuleInfo

T = TypeVar("T")

MAX_TOTAL_BYTES: Final = 2**30
"""Limit on the kernel files of one folder together."""


class ModuleCache:
    """Kernel files by name. A file that could not be read or described fails in the same way each time."""

    def __init__(self, folder: ArtifactFolder) -> None:
        self._folder = folder
        self._files: dict[str, tuple[bytes, str] | ArtifactError] = {}
        self._modules: dict[str, ModuleInfo | ArtifactError] = {}
        self._names: tuple[str, ...] | None = None
        self._bytes = 0

    def names(self) -> tuple[str, ...]:
        """The entries of `kernels`, sorted. Raises what ArtifactFolder.module_names raises."""
        if self._names is None:
            self._names = self._folder.module_names()
        return self._names

    def sha256(self, name: str) -> str:
        """The hash of a file's bytes, in hexadecimal. Raises what ArtifactFolder.read_module raises."""
        return self._file(name)[1]

    def module(self, name: str) -> ModuleInfo:
        """The description of a file. Raises as `sha256` does, and BadModule."""
        from kern.artifact.modules import describe  # imports pyelftools, which only a folder with kernels needs

        if name not in self._modules:
            try:
                self._modules[name] = describe(name, *self._file(name))
            except ArtifactError as error:
                self._modules[name] = error
        return _or_raise(self._modules[name])

    def _file(self, name: str) -> tuple[bytes, str]:
        if name not in self._files:
            try:
                self._files[name] = self._read(name)
            except ArtifactError as error:
                self._files[name] = error
        return _or_raise(self._files[name])

    def _read(self, name: str) -> tuple[bytes, str]:
        image = self._folder.read_module(name) if self._bytes <= MAX_TOTAL_BYTES else b""
        self._bytes += len(image)
        if self._bytes > MAX_TOTAL_BYTES:
            raise FileTooLarge(
                f"the kernel files up to kernels/{name} have more than {MAX_TOTAL_BYTES:,} bytes, the limit",
                "keep only the kernel files that the manifest uses",
            )
        return image, hashlib.sha256(image).hexdigest()


def _or_raise(outcome: T | ArtifactError) -> T:
    if isinstance(outcome, ArtifactError):
        raise outcome
    return outcome
