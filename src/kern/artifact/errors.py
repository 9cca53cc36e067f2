"""What can be wrong with files on disk, each kind of failure its own type."""

from __future__ import annotations

from kern.manifest.errors import KernError, variant


class ArtifactError(KernError):
    """An artifact folder, or a file in it, cannot be used."""


FolderReplaced = variant(KernError, "folder-replaced", "The folder was replaced while it was read.", exit_code=2)
FolderUnreadable = variant(ArtifactError, "folder-unreadable", "The folder is missing or unreadable.", exit_code=2)
FileMissing = variant(ArtifactError, "file-missing", "A required file does not exist.", exit_code=2)
FileUnreadable = variant(ArtifactError, "file-unreadable", "A file may not be read, or the disk failed.", exit_code=2)
UnsafePath = variant(ArtifactError, "unsafe-path", "A path leaves the folder, or is not a regular file.")
FileTooLarge = variant(ArtifactError, "file-too-large", "A file is larger than anything that kern reads into memory.")
BadModule = variant(
    ArtifactError,
    "bad-module",
    "A kernel file is not a module, or its contents cannot be analysed.",
    help="build the kernels again, or take the file out of the folder",
)
BadWeights = variant(ArtifactError, "bad-weights", "A weights file is not a complete and consistent safetensors file.")
UnknownTarget = variant(ArtifactError, "unknown-target", "The target is unknown or not supported.", exit_code=2)
