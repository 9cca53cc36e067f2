"""kern runs models as executables: `verify` a manifest, `load` an artifact. Every error is a `KernError`."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["KernError", "load", "verify"]

if TYPE_CHECKING:
    from kern.manifest.errors import KernError
    from kern.runtime.loading import load
    from kern.verification.verify import verify


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `import kern` itself costs nothing."""
    if name == "KernError":
        from kern.manifest.errors import KernError

        return KernError
    if name == "load":
        from kern.runtime.loading import load

        return load
    if name == "verify":
        from kern.verification.verify import verify

        return verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
