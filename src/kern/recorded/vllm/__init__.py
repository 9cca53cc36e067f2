"""vLLM's recorded kernels: signatures, parts of a pass, bindings, and what a recording must show."""
