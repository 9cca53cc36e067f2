"""Numbers as people read them."""

from __future__ import annotations


def binary(size: int) -> str:
    """Bytes in B, KiB, MiB or GiB: `12.3 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def rate(bytes_per_second: float) -> str:
    """Bytes per second in GB/s or TB/s, powers of ten."""
    if bytes_per_second >= 1e12:
        return f"{bytes_per_second / 1e12:.2f} TB/s"
    return f"{bytes_per_second / 1e9:.1f} GB/s"
