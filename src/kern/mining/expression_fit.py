"""Fitting values seen at token counts with the manifest's expressions: the smallest one that gives them all.

>>> found = fit([(1, 1), (3, 1), (16, 5), (34, 9), (85, 22), (175, 44)])
>>> found.status, show(found.expression)
('fit', 'ceil((tokens + 1) / 4)')
>>> fit([(1, 64), (5, 128), (9, 128)]).why
'but 64 at tokens = 1'
>>> fit([(1, 3), (5, 9), (16, 2)]).why
'no expression gives 1 → 3, 5 → 9, 16 → 2'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import groupby, pairwise
from math import ceil, gcd
from typing import Final, Literal, TypeAlias

from kern.manifest.expressions import Add, Expr, Mul, Sym, evaluate, show

Status = Literal["fit", "masked", "underdetermined", "unfit"]
Sample: TypeAlias = tuple[int, int]
"""A token count and the value seen at it."""

TOKENS: Final = Sym(sym="tokens")
SHOWN: Final = 6
_SHIFTS: Final = tuple(shift for step in range(1, 9) for shift in (step, -step))
"""The constants that are added to the token count."""
_CHANCE: Final = Fraction(1, 8)
"""An interval of width w holds a fraction with denominator q by chance once q² w is near 1."""
_FACTORS: Final = 4096
_UNBOUNDED: Final = 1 << 128
"""More than any divisor: counts and values have 64 bits."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What values follow: `expression` in `tokens`, None where there is none; `why` says what is not certain.

    `fit`: no smaller expression and no other of its size gives all values, and there were more token counts than
    unknowns. `masked`: constant but at one token, where a stride has no meaning. `underdetermined`: it gives all
    values, as others would. `unfit`: none was found.
    """

    status: Status
    expression: Expr | None
    why: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class _Form:
    """An expression, its unknowns, and others of its form that give the same values."""

    expression: Expr
    unknowns: int
    others: tuple[Expr, ...] = ()


def fit(values: Iterable[Sample]) -> Fit:
    """The expression behind values at token counts, which are at least 1."""
    samples = tuple(sorted(set(values)))
    counts = [tokens for tokens, _ in samples]
    for (tokens, value), (again, other) in pairwise(samples):
        if tokens == again:
            why = f"varies between passes of equal token count: {value} and {other} at {tokens}"
            return Fit("unfit", None, why, samples)
    if not samples:
        return Fit("unfit", None, "never seen with a known token count", ())
    if len(counts) == 1:
        return Fit("underdetermined", samples[0][1], f"only seen at tokens = {counts[0]}", samples)
    best = next(_forms(samples), None)
    if best is not None and (len(samples) > best.unknowns or best.unknowns == 0) and not best.others:
        return Fit("fit", best.expression, "", samples)
    if counts[0] == 1 and len(samples) > 2 and len({value for _, value in samples[1:]}) == 1:
        return Fit("masked", samples[1][1], f"but {samples[0][1]} at tokens = 1", samples)
    if best is None:
        return Fit("unfit", None, f"no expression gives {shown(samples)}", samples)
    if best.others:
        return Fit("underdetermined", best.expression, f"so does {show(best.others[0])}", samples)
    return Fit("underdetermined", best.expression, f"only seen at tokens = {', '.join(map(str, counts))}", samples)


def shown(samples: Sequence[Sample]) -> str:
    """Samples for people, equal ones together: `1 … 34 → 64, 85 → 136`."""
    groups = [list(group) for _, group in groupby(samples, key=lambda sample: sample[1])]
    parts = []
    for group in groups[:SHOWN]:
        (first, value), (last, _) = group[0], group[-1]
        parts.append(f"{first} → {value}" if first == last else f"{first} … {last} → {value}")
    return ", ".join(parts) + (f", … ({len(samples)} in all)" if len(groups) > SHOWN else "")


def _forms(samples: Sequence[Sample]) -> Iterator[_Form]:
    """The expressions that give all samples, smaller ones first."""
    for form in (
        *(_constant, _tokens, _multiple, _shifted, _divided, _shifted_divided, _ratio),
        *(_multiple_of_divided, _divided_shifted, _line, _floor, _scaled_shifted, _scaled_ratio),
    ):
        if (found := form(samples)) is not None:
            yield found


def _checked(samples: Sequence[Sample], expression: Expr, unknowns: int, others: tuple[Expr, ...] = ()) -> _Form | None:
    """The form, if it gives all samples."""
    if all(evaluate(expression, {"tokens": tokens}) == value for tokens, value in samples):
        return _Form(expression, unknowns, others)
    return None


def _constant(samples: Sequence[Sample]) -> _Form | None:
    return _checked(samples, samples[0][1], 0)


def _tokens(samples: Sequence[Sample]) -> _Form | None:
    return _checked(samples, TOKENS, 0)


def _multiple(samples: Sequence[Sample]) -> _Form | None:
    tokens, value = samples[-1]
    return _checked(samples, TOKENS * (value // tokens), 1) if value >= 2 * tokens else None


def _shifted(samples: Sequence[Sample]) -> _Form | None:
    return _checked(samples, TOKENS + (samples[0][1] - samples[0][0]), 1)


def _divisors(samples: Sequence[Sample], shift: int = 0, constant: int = 0) -> tuple[int, ...]:
    """The d of ceil((tokens + shift) / d) + constant: the preferred one, a power of two if any, and another."""
    low, high = 2, _UNBOUNDED
    for tokens, value in samples:
        over, value = tokens + shift, value - constant
        if over < 1 or value < 1:
            return ()
        low = max(low, -(-over // value))
        if value > 1:
            high = min(high, (over - 1) // (value - 1))
        if low > high:
            return ()
    if high == _UNBOUNDED:
        return ()
    power = 2 ** (low - 1).bit_length()
    if power > high:
        return (low, low + 1) if low < high else (low,)
    return (power,) if low == high else (power, low if low != power else low + 1)


def _over(shift: int, divisor: int) -> Expr:
    return (TOKENS + shift if shift else TOKENS).over(divisor)


def _divided(samples: Sequence[Sample]) -> _Form | None:
    return _by_divisors(samples, 0, 1, _over)


def _shifted_divided(samples: Sequence[Sample]) -> _Form | None:
    return _first(_by_divisors(samples, shift, 2, _over) for shift in _SHIFTS)


def _divided_shifted(samples: Sequence[Sample]) -> _Form | None:
    def with_constant(constant: int) -> _Form | None:
        return _by_divisors(samples, 0, 2, lambda shift, divisor: Add(add=(_over(shift, divisor), constant)), constant)

    return _first(map(with_constant, _SHIFTS))


def _floor(samples: Sequence[Sample]) -> _Form | None:
    """tokens / d rounded down is ceil((tokens + 1) / d) - 1."""
    above = [(tokens, value + 1) for tokens, value in samples]
    return _by_divisors(above, 1, 1, lambda shift, divisor: Add(add=(_over(shift, divisor), -1)))


def _multiple_of_divided(samples: Sequence[Sample]) -> _Form | None:
    return _scaled(samples, (0,))


def _scaled_shifted(samples: Sequence[Sample]) -> _Form | None:
    return _scaled(samples, _SHIFTS)


def _scaled(samples: Sequence[Sample], shifts: Sequence[int]) -> _Form | None:
    """ceil((tokens + shift) / d) * factor, for the factors that all values have."""
    common = reduce(gcd, (value for _, value in samples))
    if common < 2:
        return None

    def with_factor(factor: int, shift: int) -> _Form | None:
        part = [(tokens, value // factor) for tokens, value in samples]
        unknowns = 2 + (shift != 0)
        return _by_divisors(part, shift, unknowns, lambda shift, divisor: Mul(mul=(_over(shift, divisor), factor)))

    factors = [f for f in (common, *range(min(common - 1, _FACTORS), 1, -1)) if common % f == 0]
    return _first(with_factor(factor, shift) for factor in factors for shift in shifts)


def _by_divisors(
    samples: Sequence[Sample], shift: int, unknowns: int, make: Callable[[int, int], Expr], constant: int = 0
) -> _Form | None:
    """`make(shift, divisor)` for the divisors that give all samples.

    Unless a sample is a multiple of the divisor, rounding up and one more than rounding down are the same.
    """
    divisors = _divisors(samples, shift, constant)
    if not divisors:
        return None
    others = [make(shift, divisor) for divisor in divisors[1:]]
    if shift == 0 and divisors[0] in _divisors(samples, 1, constant):
        others.append(make(1, divisors[0]))
    return _Form(make(shift, divisors[0]), unknowns, tuple(others))


def _first(forms: Iterable[_Form | None]) -> _Form | None:
    """The first form that is certain, else the first."""
    uncertain = None
    for form in forms:
        if form is not None:
            if not form.others:
                return form
            uncertain = uncertain or form
    return uncertain


def _line(samples: Sequence[Sample]) -> _Form | None:
    (first, low), (last, high) = samples[0], samples[-1]
    factor = (high - low) // (last - first)
    if factor < 2:
        return None
    return _checked(samples, TOKENS * factor + (low - factor * first), 2)


def _ratio(samples: Sequence[Sample]) -> _Form | None:
    """ceil(tokens * a / d), where the samples leave room for one fraction that is much simpler than chance gives."""
    below, above = (-1, 1), (samples[0][1], samples[0][0])
    for tokens, value in samples:
        if (value - 1) * below[1] > below[0] * tokens:
            below = value - 1, tokens
        if value * above[1] < above[0] * tokens:
            above = value, tokens
        if below[0] * above[1] >= above[0] * below[1]:
            return None
    low, high = Fraction(*below), Fraction(*above)
    if low < 0:
        return None
    ratio = _simplest(low, high)
    if ratio.denominator**2 * (high - low) > _CHANCE or ratio.numerator < 2 or ratio.denominator < 2:
        return None
    return _Form((TOKENS * ratio.numerator).over(ratio.denominator), 2)


def _scaled_ratio(samples: Sequence[Sample]) -> _Form | None:
    """ceil(tokens * a / d) * factor, for the largest factor that all values have."""
    factor = reduce(gcd, (value for _, value in samples))
    form = _ratio([(tokens, value // factor) for tokens, value in samples]) if factor > 1 else None
    return form and _Form(Mul(mul=(form.expression, factor)), form.unknowns + 1)


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the smallest denominator above `low` and not above `high`."""
    whole = low.numerator // low.denominator
    if whole + 1 <= high:
        return Fraction(whole + 1)
    below, above = low - whole, high - whole
    # whole + x with below < x <= above < 1; 1 / x then lies in [1 / above, 1 / below).
    return whole + 1 / _simplest_from(1 / above, 1 / below if below else None)


def _simplest_from(low: Fraction, high: Fraction | None) -> Fraction:
    """The fraction with the smallest denominator not below `low` and below `high`, None for infinity."""
    up = Fraction(ceil(low))
    if high is None or up < high:
        return up
    whole = low.numerator // low.denominator
    # low is not an integer here and lies with high in one unit interval: x in (1 / (high - whole), 1 / (low - whole)].
    return whole + 1 / _simplest(1 / (high - whole), 1 / (low - whole))
