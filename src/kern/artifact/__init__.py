"""The artifact on disk: the folder, its kernel files, its weights, and rule 10."""

from kern.artifact.folder import ArtifactFolder, open_folder
from kern.artifact.resolve import Resolution, resolve
from kern.artifact.weights import WeightsFile, open_weights

__all__ = ["ArtifactFolder", "Resolution", "WeightsFile", "open_folder", "open_weights", "resolve"]
