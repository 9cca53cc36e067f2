"""The transformer kernels: interfaces, sources for host and CUDA, and their compilation."""
