"""What vLLM's recorded kernels are: parameters, launches of a pass, and what a recording must show."""
