"""Verifies manifests as a compiler checks programs: rules 2 to 9, all faults in one run."""

from kern.verifier.verify import InvalidManifest, VerifiedManifest, check, verified

__all__ = ["InvalidManifest", "VerifiedManifest", "check", "verified"]
