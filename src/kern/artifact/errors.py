"""What can be wrong with files on disk, each kind of failure its own type."""

from __future__ import annotations

from typing import ClassVar

from kern.manifest.errors import KernError


class ArtifactError(KernError):
    """An artifact folder, or a file of it, cannot be used."""

    code: ClassVar[str] = "artifact"


class FolderReplaced(KernError):
    """The folder was taken away while it was read. This says nothing of the folder, so it is not an ArtifactError."""

    code: ClassVar[str] = "folder-replaced"
    exit_code: ClassVar[int] = 2


class FolderUnreadable(ArtifactError):
    """There is no such folder, or it may not be read."""

    code: ClassVar[str] = "folder-unreadable"
    exit_code: ClassVar[int] = 2


class FileMissing(ArtifactError):
    """A file that is needed is not there."""

    code: ClassVar[str] = "file-missing"
    exit_code: ClassVar[int] = 2


class FileUnreadable(ArtifactError):
    """A file is there but may not be read, or the disk failed."""

    code: ClassVar[str] = "file-unreadable"
    exit_code: ClassVar[int] = 2


class UnsafePath(ArtifactError):
    """A name leaves the folder, or what it names is a link, a directory or a device instead of a file."""

    code: ClassVar[str] = "unsafe-path"


class FileTooLarge(ArtifactError):
    """A file is larger than anything that kern reads into memory."""

    code: ClassVar[str] = "file-too-large"


class BadModule(ArtifactError):
    """A kernel file is no module, or not one that can be described without running it."""

    code: ClassVar[str] = "bad-module"


class BadWeights(ArtifactError):
    """A weights file is not a whole and consistent safetensors file."""

    code: ClassVar[str] = "bad-weights"


class BadTarget(ArtifactError):
    """A target's name is none that kern knows."""

    code: ClassVar[str] = "bad-target"
    exit_code: ClassVar[int] = 2
