"""The host device: kernels are C functions in shared objects, run on this machine's cores."""
