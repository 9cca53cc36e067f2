"""Verifies manifests as strictly as a compiler checks source code: rules 2 to 9, all errors in one run."""

from kern.verifier.verify import InvalidManifest, VerifiedManifest, check, verified

__all__ = ["InvalidManifest", "VerifiedManifest", "check", "verified"]
