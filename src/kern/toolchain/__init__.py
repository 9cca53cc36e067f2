"""Compilers and their headers: the C compiler, NVRTC, CUDA's headers."""
