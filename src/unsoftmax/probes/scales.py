"""Sizes of probes: how long a and b may be, and grids on which sums of tokens are exact."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.errors import DomainError
from unsoftmax.probes.base import Array
from unsoftmax.spec import Domain, OracleSpec

# Tokens of 22 bits survive a hidden cast to float32, so float64 oracles get them too.
_GRID_BITS = {"float64": 22, "float32": 22, "float16": 9}

RATIO = 2.0**-6
"""|b| / |a| where the domain leaves it free: b . v is then small beside a . v and rounding of y stays a matter of a."""


def power_of_two(x: float) -> float:
    """The largest power of two not above x > 0."""
    return float(2.0 ** math.floor(math.log2(x)))


def held(x: Array, dtype: str = "float32") -> Array:
    """x rounded to what `dtype` holds, as float64: a cast on the target's side then changes nothing."""
    return x if dtype == "float64" else np.asarray(x.astype(dtype).astype(np.float64))


def on_grid(x: Array, largest: float, dtype: str) -> Array:
    """Round x to multiples of a power of two so small that numbers up to `largest` keep all their digits in dtype.

    Sums of such numbers below `largest` are exact, so the target sees the very a and b that the solve uses.
    """
    step = power_of_two(largest) * 2.0 ** (1 - _GRID_BITS[dtype])
    return np.round(x / step) * step


def weights_at_infinity(lengths: tuple[float, ...]) -> Array:
    """Weights (k,) of the polynomial in 1/lambda through all lengths at 1/lambda = 0."""
    x = 1 / np.asarray(lengths)
    return np.array([np.prod([b / (b - a) for b in x if b != a]) for a in x])


def lengths_for(product: float, domain: Domain) -> tuple[float, float]:
    """Powers of two |a|, |b| with |a| |b| near `product` and |a + b| inside the domain; b shorter where possible."""
    limit = domain.norm_limit
    b = power_of_two(math.sqrt(product * RATIO))
    a = power_of_two(product / b)
    if a + b > limit:
        a = b = power_of_two(limit / 2)
        if a * b > product:
            b = power_of_two(product / a)
    return a, b


def require_pairs(spec: OracleSpec, learner: str) -> None:
    """Two-token probes and scalar answers are what the single-head learners stand on."""
    if spec.domain.length_limit < 2:
        raise DomainError(
            f"{learner} needs sequences of two tokens and max_length is {spec.domain.max_length}; "
            "with one token attention has nothing to choose from and W is invisible."
        )
