"""kern runs models as executables."""

__version__ = "0.1.0"
