"""The weight buffers against the tensors of the weights file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kern.artifact import codes
from kern.artifact.errors import ArtifactError, FileMissing
from kern.artifact.folder import ArtifactFolder
from kern.artifact.types import TensorInfo
from kern.manifest.counts import excerpt
from kern.manifest.diagnostics import Diagnostic
from kern.manifest.expressions import evaluate
from kern.manifest.types import Buffer, Manifest


def bind(
    manifest: Manifest, folder: ArtifactFolder, path: Path | None, *, required: bool = True
) -> tuple[Mapping[str, TensorInfo] | None, list[Diagnostic]]:
    """The tensors of the folder's weights file, or of the one at `path`, and the errors in binding weights to them.

    No tensors if the manifest has no weights, or if the file is unusable. A missing file is an error only if it is
    `required`.
    """
    if all(buffer.class_ != "weight" for buffer in manifest.buffers.values()):
        return None, []
    try:
        tensors = folder.weights(path).tensors
    except FileMissing as error:
        if path is None and not required:
            return None, []
        help = "put the file there, or give another one with --weights"
        return None, [codes.WEIGHTS_MISSING.at(("buffers",), error.message, help, anchor="key")]
    except ArtifactError as error:
        return None, [codes.BAD_WEIGHTS_FILE.at(("buffers",), error.message, error.help, anchor="key")]
    return tensors, list(_errors(manifest, tensors))


def _errors(manifest: Manifest, tensors: Mapping[str, TensorInfo]) -> Iterator[Diagnostic]:
    """Weight buffers without a tensor of their name, dtype and shape."""
    for name, buffer in manifest.buffers.items():
        if buffer.class_ != "weight":
            continue
        tensor = tensors.get(name)
        if tensor is None:
            yield codes.WEIGHT_MISSING.at(
                ("buffers", name),
                f"the weights file has no tensor {name!r}",
                "export the tensor under this name, or rename the buffer to the name of the tensor",
                anchor="key",
            )
            continue
        if tensor.dtype != buffer.dtype:
            yield codes.WEIGHT_DTYPE.at(
                ("buffers", name, "dtype"),
                f"weight {name!r} is {buffer.dtype} here and {excerpt(tensor.stored_dtype)} in the weights file",
                f"export the tensor as {buffer.dtype}; nothing is converted",
            )
        shape = _shape(buffer)
        if shape is not None and tensor.shape != shape:
            yield codes.WEIGHT_SHAPE.at(
                ("buffers", name, "shape"),
                f"weight {name!r} is {list(shape)} here and {list(tensor.shape)} in the weights file",
                "export the tensor in the shape that the kernels read",
            )


def _shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The constant shape of a weight; None if it is not constant, which rule 4 refuses."""
    try:
        return tuple(evaluate(extent, {}) for extent in buffer.shape)
    except (KeyError, ZeroDivisionError):
        return None
