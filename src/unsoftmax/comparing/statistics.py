"""Tests on standardised residuals: tails, bets, and the change that a test would have seen."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import optimize, special, stats

from unsoftmax.comparing.constants import COMPARING
from unsoftmax.models.base import Array

_BETS = np.concatenate([[0.5, 2.0, 6.0, 20.0], np.logspace(2, 24, 12)])
"""Variances of the alternatives that the e-value bets on, in units of the noise: changes of every size up to all."""
_SHARES_OF_BETS = np.concatenate([np.full(4, 0.8 / 4), np.full(12, 0.2 / 12)])
"""Capital that each begins with: a change far beyond the noise is seen at once whatever was bet on it, one of twice the
noise is seen as soon as if its size were known (beyond four calls of a monitor in 4 % of the runs, 10 % with thirty
equal bets)."""


def energy(z: Array) -> Array:
    """Mean square over the outputs, (batch,): z (batch,) or (batch, outputs).

    Errors of one answer are correlated in an unknown way. The tail of their mean square lies below that of a single
    squared Gaussian (a weighted mean of chi-squares of one degree; Szekely and Bakirov 2003), so that an answer counts
    as one degree of freedom whatever its width.
    """
    return np.asarray(z**2 if z.ndim == 1 else (z**2).mean(axis=1))


def tail(energies: Array) -> float:
    """p-value of a sum of n such means against chi-square of n degrees."""
    n = len(energies)
    return float(stats.chi2.sf(float(energies.sum()), n)) if n else 1.0


def tail_of_one_output(z: Array) -> float:
    """p-value of the output that differs most, corrected for their number: a change may show in a single output."""
    if z.ndim == 1:
        return 1.0
    sums = (z**2).sum(axis=0)
    return min(1.0, z.shape[1] * float(stats.chi2.sf(float(sums.max()), len(z))))


def log_bets(energies: Array) -> Array:
    """Logarithm of the e-value of every bet after these answers, (bets,); at most 1 on average if nothing changed.

    (1 + rho)^-1/2 exp(z^2 rho / 2(1 + rho)) is a likelihood ratio of Gaussians; means over outputs keep it so, since
    the exponential is convex.
    """
    n, total = len(energies), float(np.minimum(energies, 1e30).sum())
    return np.asarray(-0.5 * n * np.log1p(_BETS) + 0.5 * total * (_BETS / (1 + _BETS)))


def log_e_value(energies: Array) -> float:
    """Logarithm of the mixture over all bets."""
    return float(special.logsumexp(log_bets(energies) + log_shares()))


def log_shares() -> Array:
    """Logarithm of the capital that each bet begins with, (bets,); 1 in all."""
    return np.asarray(np.log(_SHARES_OF_BETS))


@cache
def needed(n: int, alpha: float, power: float) -> float:
    """Sum of squared signals (in units of the modelled noise) at which n answers reject at `alpha` with `power`.

    The real noise may be any part of the modelled one: the largest requirement over its size counts.
    """
    critical = float(stats.chi2.isf(alpha, n))
    return max(_needed(n, critical, power, share) for share in COMPARING.noise_shares)


def _needed(n: int, critical: float, power: float, share: float) -> float:
    def missing(signal: float) -> float:
        return float(stats.ncx2.sf(critical / share**2, n, signal / share**2)) - power

    high = 4.0 * critical + 100.0
    if missing(high) < 0:
        return high
    return float(optimize.brentq(missing, 0.0, high, xtol=1e-3 * critical))
