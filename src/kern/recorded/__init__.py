"""Kernels recorded from other engines as implementations of a provider's interfaces."""
