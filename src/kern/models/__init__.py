"""Providers: generators for model families, and the sources of their kernels."""
