"""Rotary embedding: the frequency of each pair of elements of a head, plain and scaled, and the table of angles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Linear:
    """Every frequency divided by `factor` (transformers and llama.cpp: `linear`)."""

    factor: float

    def scaled(self, frequencies: F64, theta: float) -> F64:
        """The frequencies in radians per position, scaled."""
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class Llama3:
    """Low frequencies divided by `factor`, high ones kept, a smooth transition in between (transformers: `llama3`).

    A frequency is low with a wavelength above `positions / low`, and high with one below `positions / high`.
    """

    factor: float
    low: float
    high: float
    positions: int

    def scaled(self, frequencies: F64, theta: float) -> F64:
        """The frequencies in radians per position, scaled."""
        turns = self.positions * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        scaled: F64 = frequencies * (kept + (1 - kept) / self.factor)
        return scaled


@dataclass(frozen=True, slots=True)
class Yarn:
    """Between frequencies kept and divided by `factor`, a ramp over the pairs (Peng et al. 2023, YaRN, section 3.2).

    A pair that turns `fast` times or more within the `positions` of the training is kept, one that turns `slow` times
    or fewer is divided. `truncate` rounds the ramp's ends to whole pairs, as transformers does unless asked not to, and
    llama.cpp always.
    """

    factor: float
    positions: int
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def scaled(self, frequencies: F64, theta: float) -> F64:
        """The frequencies in radians per position, scaled."""
        start, end = self.ramp(2 * frequencies.size, theta)
        divided = np.clip((np.arange(frequencies.size) - start) / (end - start if end != start else 0.001), 0, 1)
        scaled: F64 = frequencies * ((1 - divided) + divided / self.factor)
        return scaled

    def ramp(self, size: int, theta: float) -> tuple[float, float]:
        """The pairs of a head of `size` elements between which the ramp rises."""

        def pair(turns: float) -> float:
            return size * math.log(self.positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

        start, end = pair(self.fast), pair(self.slow)
        if self.truncate:
            start, end = math.floor(start), math.ceil(end)
        return max(start, 0), min(end, size - 1)


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the frequencies are scaled.

    They are divided by `divisors`, one for each pair (GGUF's tensor `rope_freqs.weight`), then scaled by `curve`.
    Cosines and sines are multiplied by `amplitude`, the attention factor of YaRN.
    """

    curve: Linear | Llama3 | Yarn | None = None
    divisors: tuple[float, ...] = ()
    amplitude: float = 1.0


def yarn_amplitude(factor: float, weight: float = 1.0) -> float:
    """0.1 · weight · ln(factor) + 1, and 1 for a factor up to 1 (YaRN, equation 22, as transformers generalises it)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def frequencies(size: int, theta: float, scaling: RopeScaling | None) -> F64:
    """f64 [size / 2], radians per position: theta^(-2i / size), scaled (Su et al. 2021, RoFormer, equation 15)."""
    plain: F64 = theta ** (-np.arange(0, size, 2) / size)
    if scaling is None:
        return plain
    divided = plain / np.array(scaling.divisors) if scaling.divisors else plain
    return divided if scaling.curve is None else scaling.curve.scaled(divided, theta)


def turns(positions: range, size: int, theta: float, scaling: RopeScaling | None) -> NDArray[np.float32]:
    """f32 [positions, size]: the cosines of a position's size / 2 angles, then their sines."""
    angles = np.array(positions)[:, None] * frequencies(size, theta, scaling)
    table: F64 = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return (table if scaling is None else table * scaling.amplitude).astype(np.float32)
