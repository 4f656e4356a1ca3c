"""Logits of token pairs with error radii; steep and saturated pairs are asked again, closer to 0.

Theory: docs/theory/reading.md, "Saturated entries", by copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise, Shares, shares
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array
from unsoftmax.probes.norm_budget import TokenPairs
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Values:
    """v (d,) and `radius`, a bound on ||v^ - v||_2."""

    v: Array
    radius: float

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.v))


@dataclass(frozen=True, eq=False)
class Reading:
    """Logits T (d, d) of a design, with what may be wrong about them: see `TokenPairSystem`.

    `noise` bounds the part of T's error that comes from the pair's own answer; `P`, `Q` are the intervals of the
    weights with which an error of v enters.
    """

    T: Array
    noise: Array
    P: tuple[Array, Array]
    Q: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of a design, read with v and the noise as they are known; rows and columns (n,) choose pairs, and both
    tokens of each are multiplied by its kappa."""

    design: TokenPairs
    values: Values
    noise: Noise

    def span_and_size(self, rows: Array, columns: Array) -> tuple[Array, Array]:
        """(x1 - x2).v and the largest |x| |v|, per pair."""
        X1, X2, v = self.design.X1, self.design.X2, self.values.v
        length = np.maximum(np.linalg.norm(X1, axis=1)[rows], np.linalg.norm(X2, axis=1)[columns])
        return (X1 @ v)[rows] - (X2 @ v)[columns], length * self.values.norm

    def _slack(self, y: Array, size: Array) -> Array:
        """Everything that may be wrong: the answer, and v along both tokens."""
        return self.noise.radius(y, size) + size * (self.values.radius / self.values.norm)

    def shares(self, y: Array, rows: Array, columns: Array, kappa: Array) -> Shares:
        """Shares of the first token, with their radii."""
        span, size = self.span_and_size(rows, columns)
        base = (self.design.X2 @ self.values.v)[columns]
        return shares(y, span * kappa, base * kappa, self._slack(y, size * kappa))

    def blur(self, y: Array, rows: Array, columns: Array, kappa: Array | float = 1.0) -> float:
        """How much of the interval between its two tokens a typical answer's error covers, as far as answers came."""
        span, size = self.span_and_size(rows, columns)
        share = (self._slack(y, size * kappa) / np.abs(span * kappa))[np.isfinite(y)]
        share = share[np.isfinite(share)]
        return float(np.median(share)) if len(share) else 0.0

    def refuse_drowned(self, kappa: float = 1.0) -> None:
        """Raise if even an unsaturated answer could not be read at this size of tokens."""
        zero = np.zeros(1, dtype=np.int64)
        span, size = self.span_and_size(zero, zero)
        radius = self._slack(np.zeros(1), size * kappa)
        if 2 * radius[0] >= 0.9 * abs(span[0]) * kappa:
            advice = "Allow longer tokens (max_norm) or less noise"
            if self.noise.link is None:
                advice += "; noise that differs from query to query can be averaged (accuracy=)"
            raise NotIdentifiable(
                f"an answer may be wrong by {radius[0]:.2g} (noise, and what it leaves in v), and a probe's two tokens "
                f"differ by only {abs(span[0]) * kappa:.2g}: no logit can be read where it is not saturated. {advice}."
            )


def read_pairs(design: TokenPairs, y: Array, values: Values, spec: OracleSpec, noise: Noise) -> Asking[Reading]:
    """Logits from the answers y (d, d); steep and saturated ones are asked again, closer to 0, as phase "repair"."""
    rows, columns = np.indices(design.shape)
    return (yield from read_some(design, rows, columns, y, values, spec, noise))


def read_some(
    design: TokenPairs, rows: Array, columns: Array, y: Array, values: Values, spec: OracleSpec, noise: Noise
) -> Asking[Reading]:
    """As `read_pairs`, for the pairs at `rows` and `columns` alone; the reading has their shape."""
    shape = rows.shape
    rows, columns = rows.ravel(), columns.ravel()
    state = _Entries(Pairs(design, values, noise), rows, columns)
    state.take(np.arange(len(rows)), y.ravel())
    limit = spec.domain.length_limit
    for _ in range(24):
        again = state.plan(limit)
        if len(again) == 0:
            return state.best.reading(shape)
        fresh = yield design.at(rows[again], columns[again], state.shrink[again], state.copies[again], "repair")
        state.take(again, fresh)
    left = int((~np.isfinite(state.best.radius)).sum())
    refuse_blurred(state.blurred)
    raise ModelMismatch(
        f"{left} of {len(rows)} answers stay outside the interval between x2.v and x1.v however small the tokens are; "
        "a single softmax head answers inside it. Choose a wider class, or diagnose the target."
    )


class _Entries:
    """Best reading of every pair so far, and how each is to be asked next."""

    def __init__(self, pairs: Pairs, rows: Array, columns: Array) -> None:
        self.pairs, self.rows, self.columns = pairs, rows, columns
        n = len(rows)
        self.shrink, self.copies = np.ones(n), np.ones((n, 2), dtype=np.int64)
        self.tries = np.zeros(n, dtype=np.int64)
        self.best = _Best(n)
        self.blurred = 0.0

    def take(self, index: Array, y: Array) -> None:
        """Interpret the answers of the pairs at `index`; keep those that say more than what is held."""
        kappa, copies = self.shrink[index], self.copies[index]
        seen = self.pairs.shares(y, self.rows[index], self.columns[index], kappa)
        self.best.improve(index, seen, kappa, np.log(copies[:, 0] / copies[:, 1]), *self._weights(index, y, kappa))
        self.tries[index] += 1
        out = ~np.isfinite(seen.radius)
        if out.any():
            share = self.pairs.blur(y[out], self.rows[index[out]], self.columns[index[out]], kappa[out])
            self.blurred = max(self.blurred, share)

    def _weights(self, index: Array, y: Array, kappa: Array) -> tuple[Array, Array]:
        span, size = self.pairs.span_and_size(self.rows[index], self.columns[index])
        return span * kappa, self.pairs.noise.radius(y, size * kappa)

    def plan(self, length_limit: float) -> Array:
        """Pairs to ask again, with their `shrink` and `copies` set."""
        lost = ~np.isfinite(self.best.radius)
        if lost.any():
            self.pairs.refuse_drowned(float(self.shrink[lost].min()))
        self.shrink[lost] *= np.where(self.tries[lost] > 1, 0.5, 0.25)
        logit = self.best.T * self.best.kappa**2
        most = min(CORE.most_copies, length_limit - 1)
        steep = ~lost & (np.abs(np.nan_to_num(self.best.seen)) > CORE.steep_logit) & (self.tries < 6)
        if most >= 2:
            copies = np.minimum(np.round(np.exp(np.minimum(np.abs(logit[steep]), 10.0))), most).astype(np.int64)
            ones = np.ones_like(copies)
            up = logit[steep] > 0
            wanted = np.stack([np.where(up, ones, copies), np.where(up, copies, ones)], axis=1)
            fresh = (wanted != self.copies[steep]).any(axis=1) | (self.shrink[steep] != self.best.kappa[steep])
            index = np.flatnonzero(steep)[fresh]
            self.copies[index] = wanted[fresh]
            self.shrink[index] = self.best.kappa[index]
        else:
            index = np.flatnonzero(steep & (np.abs(logit) > CORE.steep_logit + 1) & (self.shrink == self.best.kappa))
            self.shrink[index] *= 0.5
        self.copies[lost] = 1
        return np.union1d(np.flatnonzero(lost), index)


class _Best:
    """Arrays over pairs: the logit at full scale and the quantities its error is made of."""

    def __init__(self, n: int) -> None:
        self.T, self.seen, self.kappa = np.full(n, np.nan), np.full(n, np.nan), np.ones(n)
        self.radius = np.full(n, np.inf)
        self.noise = np.full(n, np.inf)
        self.P, self.Q = np.zeros((2, n)), np.zeros((2, n))

    def improve(self, index: Array, seen: Shares, kappa: Array, shift: Array, span: Array, tau: Array) -> None:
        radius = seen.radius / kappa**2
        better = radius < self.radius[index]
        k = index[better]
        s = kappa[better]
        span = np.abs(span[better])
        low, high = seen.low[better], seen.high[better]
        steep, flat = seen.steepest[better], seen.flattest[better]
        self.radius[k], self.kappa[k], self.seen[k] = radius[better], s, seen.t[better]
        self.T[k] = (seen.t[better] - shift[better]) / s**2
        self.noise[k] = steep * tau[better] / (span * s**2)
        self.P[:, k] = np.stack([flat * low, steep * high]) / (span * s)
        self.Q[:, k] = np.stack([flat * (1 - high), steep * (1 - low)]) / (span * s)

    def reading(self, shape: tuple[int, ...]) -> Reading:
        P, Q = (x.reshape(2, *shape) for x in (self.P, self.Q))
        return Reading(self.T.reshape(shape), self.noise.reshape(shape), (P[0], P[1]), (Q[0], Q[1]))


def refuse_blurred(share: float) -> None:
    """Raise if answers that could not be read are as noisy as `share` of the interval they should lie in."""
    if share > CORE.blurred_share:
        raise NotIdentifiable(
            f"no token length gives readable answers: their own error covers {min(share, 1.0):.0%} of the interval "
            "between a probe's two tokens, so that saturated ones cannot be told from others. Allow less noise "
            "(tolerance, digits) or longer tokens."
        )
