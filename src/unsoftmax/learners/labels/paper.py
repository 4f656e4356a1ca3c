"""Theorem B.1 as stated: v from the mean of random vectors, W entry by entry from one sign flip each.

Theory: docs/theory/membership.md, "The theorem as stated".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument
from unsoftmax.learners.core.base import Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.labels.asking import SCORE_ERROR, VALUE_ERROR
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import Array, LazyProbes, Probes, one_row
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.bisection import Brackets
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class SignFlips:
    """The theorem's constants: eps_W absolute, W_bound >= max(2, ||W||_F), margin <= min |v_i|, |v| = 1."""

    eps_W: float
    W_bound: float
    margin: float
    delta: float
    eps_v: float

    @classmethod
    def of(
        cls, d: int, eps_W: float, W_bound: float | None, margin: float | None, delta: float, eps_v: float | None
    ) -> SignFlips:
        if W_bound is None or margin is None:
            raise InvalidArgument(
                'method="paper" needs `W_bound` (at least 2 and at least ||W||_F) and `margin` (at most every |v_i| '
                'of the unit v): Theorem B.1 assumes both; method="bisection" needs neither.'
            )
        if not W_bound >= 2:
            raise InvalidArgument(f"`W_bound` must be at least 2 for Theorem B.1 (got {W_bound}).")
        if not 0 < margin <= d**-0.5 * (1 + 1e-12):
            raise InvalidArgument(
                f"`margin` must be positive and at most 1/sqrt(dim) = {d**-0.5:.3g}, which no unit v exceeds "
                f"(got {margin})."
            )
        if eps_v is not None and not 0 < eps_v < margin:
            raise InvalidArgument(f"`eps_v` must be positive and below `margin` {margin:g} (got {eps_v}).")
        if eps_v is None:
            eps_v = theory.membership_value_error(d, eps_W, W_bound, margin)
        return cls(eps_W, W_bound, margin, delta, eps_v)

    def forecast(self, spec: OracleSpec) -> Forecast:
        d = spec.dim
        samples = theory.membership_value_queries(d, self.eps_v, self.delta)
        if samples > LABELS.most_random_vectors:
            raise InvalidArgument(
                f"Theorem B.1 asks {samples:.2g} queries for v alone here (eps_v = {self.eps_v:.2g}); pass a larger "
                '`accuracy`, or `eps_v` to stop earlier, or use method="bisection".'
            )
        low, high = theory.membership_interval(self.W_bound, self.margin)
        longest = max(
            1.0, math.hypot(1 / (2 * self.W_bound * low), low), math.hypot(1 / (2 * self.W_bound * high), high)
        )
        longest = max(longest, high + 1 / (2 * self.W_bound * high), low + 1 / (2 * self.W_bound * low))
        if longest > spec.domain.norm_limit:
            raise DomainError(
                f"Theorem B.1 needs tokens of norm {longest:.3g} and max_norm is {spec.domain.max_norm:g}; "
                'method="bisection" stays inside.'
            )
        steps = theory.membership_entry_queries(d, self.eps_W, self.W_bound, self.margin)
        return Forecast({"values": samples, "main": d * d * steps}, extra=0)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        d = spec.dim
        v = yield from self._direction(spec, seed)
        W = yield from self._scores(v, d)
        value_error = self.eps_v * math.sqrt(d)
        # The theorem's own relation of both errors, where eps_v was set by hand.
        score_error = max(self.eps_W, 40 * self.W_bound * d * self.eps_v / self.margin**3)
        sure = f"with probability {1 - self.delta:g}, if W_bound and margin hold"
        values = Claim(VALUE_ERROR, value_error, None, "proved", "Theorem B.1", sure)
        scores = Claim(SCORE_ERROR, score_error, None, "proved", "Theorem B.1", sure)
        return Outcome(Head(W, v), allows=Allowance(values=values, scores=scores))

    def _direction(self, spec: OracleSpec, seed: int) -> Asking[Array]:
        """(1 / (R k)) sum of sign x over k random unit x: unbiased, with standard deviation 1 / (R sqrt(d k))."""
        d = spec.dim
        k = theory.membership_value_queries(d, self.eps_v, self.delta)
        R = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
        total = np.zeros(d)
        size = max(1, LABELS.bytes_held_at_once // (8 * d))
        for number, start in enumerate(range(0, k, size)):
            x = np.random.default_rng([seed, number]).standard_normal((min(size, k - start), d))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            x = x.astype(spec.dtype).astype(np.float64, copy=False)
            answers = yield one_row(x)
            total += (2 * answers - 1) @ x
        return total / (R * k)

    def _scores(self, v: Array, d: int) -> Asking[Array]:
        """Every W_ij from the length a at which [s/a e_i + a e_j ; a e_j] changes its label."""
        steps = theory.membership_entry_queries(d, self.eps_W, self.W_bound, self.margin)
        low, high = theory.membership_interval(self.W_bound, self.margin)
        i, j = (index.ravel() for index in np.indices((d, d)))
        alpha = v[j] / np.where(v[i] == 0, 1e-300, v[i])
        s = np.where(alpha > 0, -1.0, 1.0) / (2 * self.W_bound)
        search = Brackets.between(d * d, low, high)
        everything = np.arange(d * d)
        for _ in range(steps):
            a = search.levels()[:, 0]
            answers = yield _flip_probes(i, j, a, s / a, d)
            # f has the sign of s v_i for a below the flip.
            below = (answers > 0.5) == (s * v[i] > 0)
            search = search.told(everything, a, below)
        share = np.clip(-(search.center**2) * alpha / s, expit(-0.5), expit(0.5))
        return np.asarray((logit(share) / s).reshape(d, d))


def _flip_probes(i: Array, j: Array, a: Array, b: Array, d: int) -> LazyProbes:
    """[b e_i + a e_j ; a e_j] for matching entries of i, j, a, b."""

    def build(start: int, stop: int) -> Probes:
        k = slice(start, stop)
        tokens = np.zeros((stop - start, 2, d))
        rows = np.arange(stop - start)
        tokens[rows, 0, i[k]] += b[k]
        tokens[rows, 0, j[k]] += a[k]
        tokens[rows, 1, j[k]] = a[k]
        return Probes(tokens)

    return LazyProbes(len(i), 2 * d * 8, build, "main")
