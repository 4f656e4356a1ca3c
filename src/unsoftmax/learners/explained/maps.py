"""Attention maps as they are answered: score differences with their errors, and the noise that all answers show.

Theory: docs/theory/explanations.md, "Explanations", rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.inversion import (
    FORMAT_SHOWS,
    decimal_error,
    fewest_decimals,
    printed_error,
    rounding_unit,
    shown_unit,
    smallest_normal,
)
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.learners.explained.design import inconsistent
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec


@dataclass
class Maps:
    """Everything asked: tokens X (n, N, d), attention (n, H, N), values (n,).

    `unit` rounds every step of the target's arithmetic, `shown` the numbers that it answers, which may have few digits.
    """

    spec: OracleSpec
    unit: float = 0.0
    shown: float = 0.0
    noise: float = 0.0
    X: list[Array] = field(default_factory=list)
    alpha: list[Array] = field(default_factory=list)
    y: list[Array] = field(default_factory=list)
    _seen: list[Array] = field(default_factory=list)

    def ask(self, X: Array, phase: str = "main") -> Asking[tuple[Array, Array]]:
        """Score differences (n, H, N - 1) to the last token, and the error of each; inf where a weight is 0."""
        answers = yield Probes(X, phase=phase)
        n, N, _ = X.shape
        alpha = answers[:, 1:].reshape(n, -1, N)
        self.unit = max(self.unit, self.spec.eps, rounding_unit(answers[:, 1:]))
        self._seen.append(answers.ravel())
        self.noise = max(self.noise, self.spec.tolerance, self._decimals(alpha))
        self.shown = max(self.shown, shown_unit(answers, self.noise))
        if phase != "pilot":
            self.X.append(X)
            self.alpha.append(alpha)
            self.y.append(answers[:, 0])
        total = alpha.sum(axis=2)
        if not (np.abs(total - 1) <= 1e3 * self.unit + 2 * N * self.noise).all():
            raise ModelMismatch(
                f"attention weights add up to {total.min():.4g}..{total.max():.4g}, not to 1: this is not softmax "
                "attention over the tokens sent (a sink, sigmoid attention, a mask?)."
            )
        return self._scores(alpha)

    def _decimals(self, alpha: Array) -> float:
        """Rounding error of the decimals that all answers so far show, or the last ones, attention (n, H, N).

        Short tokens have few different weights, perhaps one: if these have few decimals, and their sum is as far off
        1 as so many decimals leave it, they are rounded. Weights that are few decimals of themselves add up to 1.
        """
        error = decimal_error(np.concatenate(self._seen), FORMAT_SHOWS)
        off = np.abs(alpha.sum(axis=2) - 1).max()
        if error == 0 and off > 1e3 * self.unit:
            rounded = fewest_decimals(alpha)
            error = rounded if off <= alpha.shape[2] * rounded else 0.0
        return error

    def loud(self) -> float:
        """Errors that a misfit may reach: few of those that noise leaves, more of a format's, which sums go beyond."""
        rounding = 3 * self.unit * math.sqrt(self.spec.dim) + 2 * self.shown
        noise = 2 * tokens_per_sequence(self.spec) * self.noise
        return (CORE.loud * rounding + EXPLAIN.misfit_over_error * noise) / (rounding + noise)

    def _scores(self, alpha: Array) -> tuple[Array, Array]:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.maximum(alpha, 0.0))
            scores = logs[:, :, :-1] - logs[:, :, -1:]
            # Two weights are rounded, and the scores behind them in sums of d terms.
            error = self.unit * math.sqrt(self.spec.dim) * (2 + np.abs(scores)) + 2 * self.shown
            # A weight shows its logarithm as far as it exceeds its noise, and what its format still holds.
            least = max(self.noise, smallest_normal(self.unit))
            off = -np.log1p(-np.minimum(least / alpha, 1.0))
            error += off[:, :, :-1] + off[:, :, -1:]
        readable = np.isfinite(scores) & np.isfinite(error)
        return np.where(readable, scores, 0.0), np.where(readable, error, np.inf)

    def values(self) -> tuple[Array, float]:
        """v (H, d) by least squares on all values, and its error in norm.

        An error within +-noise of every number, the same for equal tokens, leaves each row of the least squares problem
        with the root mean square of one and of what it moves the pooled tokens by, and v with what the pseudo-inverse
        makes of them.
        """
        pooled = np.concatenate([np.einsum("bhn,bnd->bhd", a, x) for a, x in zip(self.alpha, self.X, strict=True)])
        n, H, d = pooled.shape
        y, A = np.concatenate(self.y), pooled.reshape(n, H * d)
        v, _, _, singular = np.linalg.lstsq(A, y, rcond=None)
        longest = max(float(np.linalg.norm(X, axis=2).max()) for X in self.X)
        rounding = max(self.unit, rounding_unit(y)) * longest * float(np.linalg.norm(v)) * math.sqrt(d)
        # Decimals of the weights move the pooled tokens as well, and so do their digits.
        largest = max(float(np.abs(X @ v.reshape(H, d).T).max()) for X in self.X)
        rounding += 2 * self.shown * largest
        # Few digits are an absolute error of the largest values, which the weights, all below 1, do not have.
        of_value = max(self.noise, printed_error(np.concatenate(self._seen), FORMAT_SHOWS))
        of_weights = self.noise * np.array([_moved(x, v.reshape(H, d)) for X in self.X for x in X])
        misfit = float(np.sqrt(np.mean((A @ v - y) ** 2)))
        most = of_value + self.noise * math.sqrt(H * EXPLAIN.tokens_of_a_map) * largest
        allowed = CORE.loud * rounding + EXPLAIN.misfit_over_error * most
        if misfit > allowed:
            raise inconsistent("values are not weighted sums of tokens", misfit, allowed, "SingleHead or MultiHead")
        rows = np.hypot(of_value, of_weights) / math.sqrt(3)
        error = rounding * math.sqrt(H * d) / float(singular[-1]) + float(np.linalg.norm(np.linalg.pinv(A) * rows))
        return v.reshape(H, d), EXPLAIN.stated_over_rounding * error


def _moved(x: Array, v: Array) -> float:
    """What errors of 1 of all weights move the value of tokens x (N, d) by, root sum of squares; v (H, d)."""
    tokens, count = np.unique(x, axis=0, return_counts=True)
    return float(np.linalg.norm(count[:, None] * (tokens @ v.T)))


def tokens_per_sequence(spec: OracleSpec) -> int:
    """N, at least 2."""
    N = int(min(EXPLAIN.tokens_of_a_map, spec.domain.length_limit))
    if N < 2:
        raise DomainError("attention over one token is 1 whatever W is; sequences of two tokens are needed.")
    return N
