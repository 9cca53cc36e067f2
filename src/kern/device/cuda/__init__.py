"""The CUDA device: kernels are functions of cubins, run on an NVIDIA GPU through the driver API."""
