"""Transformers on another engine's kernels: what is taken from a recording of it, and what the recording must show."""
