"""SOLVE many noisy answers at once by least squares, without inverting a single one.

A logit of a noisy answer is biased, and an answer near saturation tells nothing. All answers are explained together
instead, by v, W and a constant c that the service may add to each: answer = c + sign f(sequence). Sequences are asked
as they are or negated (f is odd), so that c can be told from everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaincinv

from unsoftmax.probes.base import Array

_STEPS = 40
"""Gauss-Newton steps; it takes four to ten."""

_RARELY = 1e-4
"""Probability with which a stated quantile is exceeded."""

_ENOUGH = 1e-6
"""Least squares end where a step gains this share of one answer's variance: it is then a thousandth of the error."""

_DENSE = 300
"""Unknowns up to which the law of the error is computed from all singular values (d <= 16); it is drawn beyond."""

_DRAWS = 48
_USED_BLOCKS = 16
"""Draws of the error, and random designs that stand for all: each tells a mean square to a tenth or better."""

_NONLINEAR = 1.05
"""What is beyond first order in an error, of which the bound is the once-in-10^4 quantile."""


@dataclass(frozen=True, eq=False)
class Singles:
    """One-token sequences sign * X (n, d), and what was answered, times sign."""

    X: Array
    sign: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Blocks:
    """K designs X1, X2 (K, d, d), every x1 with every x2, asked with signs (K, d, d); answers times sign (K, d, d)."""

    X1: Array
    X2: Array
    sign: Array
    y: Array

    def thinned(self, step: int) -> Blocks:
        """Every step-th design."""
        return Blocks(self.X1[::step], self.X2[::step], self.sign[::step], self.y[::step])


@dataclass(frozen=True, eq=False)
class Fit:
    """The least squares solution: v (d,), W (d, d), the constant c, and the sum of squares left by N - p answers."""

    v: Array
    W: Array
    constant: float
    squares: float
    freedom: int


def fit(singles: Singles, batches: Sequence[Blocks], v: Array, W: Array) -> Fit:
    """Gauss-Newton from (v, W), damped where a step does not help."""
    d = len(v)
    freedom = len(singles.y) + sum(batch.y.size for batch in batches) - (d * d + d + 1)
    now = Linearised(singles, batches, 0.0, v, W)
    damping = 0.0
    for _ in range(_STEPS):
        gradient = now.adjoint(now.residuals)
        step = _conjugate_gradients(now, gradient, damping)
        gain = float(gradient @ step)
        trial = now.moved(step)
        if trial.squares > now.squares:
            if gain <= _ENOUGH * now.squares:
                break
            damping = max(10 * damping, 1e-3)
            continue
        damping = damping / 10 if damping > 1e-6 else 0.0
        small = np.linalg.norm(step) <= 1e-15 * now.size
        now = trial
        if damping == 0 and (small or gain <= _ENOUGH * now.squares / max(freedom, 1)):
            break
    return Fit(now.v, now.W, now.constant, now.squares, freedom)


class Linearised:
    """All answers around (c, v, W): residuals, and their derivative J and its adjoint, never formed as a matrix."""

    def __init__(self, singles: Singles, batches: Sequence[Blocks], constant: float, v: Array, W: Array) -> None:
        self.singles, self.batches = singles, batches
        self.constant, self.v, self.W = constant, v, W
        self.alpha = [expit(logits_of(batch.X1, batch.X2, W)) for batch in batches]
        self.weight, self.residuals = [], [singles.y - singles.X @ v - constant * singles.sign]
        for batch, alpha in zip(batches, self.alpha, strict=True):
            base, span = base_and_span(batch, v)
            self.weight.append(span * alpha * (1 - alpha))
            self.residuals.append(batch.y - base - alpha * span - constant * batch.sign)
        self.squares = float(sum((r**2).sum() for r in self.residuals))

    @property
    def size(self) -> float:
        """Length of the parameters."""
        return math.sqrt(float(self.v @ self.v) + float((self.W**2).sum()) + self.constant**2)

    def moved(self, step: Array) -> Linearised:
        d = len(self.v)
        W = self.W + step[d + 1 :].reshape(d, d)
        return Linearised(self.singles, self.batches, self.constant + step[0], self.v + step[1 : d + 1], W)

    def apply(self, x: Array) -> list[Array]:
        """J x for x = (dc, dv, dW)."""
        d = len(self.v)
        dv, dW = x[1 : d + 1], x[d + 1 :].reshape(d, d)
        out = [self.singles.X @ dv + x[0] * self.singles.sign]
        for batch, alpha, weight in zip(self.batches, self.alpha, self.weight, strict=True):
            mixed = alpha * (batch.X1 @ dv)[:, :, None] + (1 - alpha) * (batch.X2 @ dv)[:, None, :]
            out.append(mixed + weight * logits_of(batch.X1, batch.X2, dW) + x[0] * batch.sign)
        return out

    def adjoint(self, r: Sequence[Array]) -> Array:
        """J'r."""
        dc, dv = float(self.singles.sign @ r[0]), self.singles.X.T @ r[0]
        dW = np.zeros_like(self.W)
        for batch, alpha, weight, part in zip(self.batches, self.alpha, self.weight, r[1:], strict=True):
            dc += float((batch.sign * part).sum())
            first, second = (alpha * part).sum(axis=2), ((1 - alpha) * part).sum(axis=1)
            dv = dv + np.einsum("kld,kl->d", batch.X1, first) + np.einsum("kjd,kj->d", batch.X2, second)
            turned = weight * part
            along = batch.X1.transpose(0, 2, 1) @ turned - batch.X2.transpose(0, 2, 1) * turned.sum(axis=1)[:, None, :]
            dW += np.tensordot(along, batch.X2, axes=([0, 2], [0, 1]))
        return np.concatenate([[dc], dv, dW.ravel()])

    def rows(self) -> Array:
        """J itself (N, p), for few answers."""
        rows = [np.column_stack([self.singles.sign, self.singles.X, np.zeros((len(self.singles.y), self.W.size))])]
        for batch, alpha, weight in zip(self.batches, self.alpha, self.weight, strict=True):
            x1, x2 = (np.broadcast_to(x, (*alpha.shape, len(self.v))) for x in _paired(batch))
            mixed = alpha[..., None] * x1 + (1 - alpha[..., None]) * x2
            outer = weight[..., None, None] * (x1 - x2)[..., :, None] * x2[..., None, :]
            rows.append(
                np.column_stack([batch.sign.ravel(), mixed.reshape(alpha.size, -1), outer.reshape(alpha.size, -1)])
            )
        return np.concatenate(rows)


@dataclass(frozen=True)
class Spread:
    """What errors of deviation 1 in the answers leave in W and in v: quantiles of ||W^ - W||_F and of ||v^ - v||."""

    W: float
    v: float


def spread(singles: Singles, batches: Sequence[Blocks], v: Array, W: Array) -> Spread:
    """Quantiles once exceeded in 10^4, from some of the designs standing for all."""
    d = len(v)
    total = sum(len(batch.y) for batch in batches)
    step = max(1, total // max(_USED_BLOCKS, math.ceil(3 * _DENSE / (d * d + d)) if d < 8 else 0))
    thin = [batch.thinned(step) for batch in batches]
    kept = sum(len(batch.y) for batch in thin)
    few = Singles(singles.X[::step], singles.sign[::step], singles.y[::step])
    scale = math.sqrt(kept / total)
    now = Linearised(few, thin, 0.0, v, W)
    if d * d + d + 1 <= _DENSE:
        rows = now.rows()
        # The smallest singular value of a direction nobody probed is rounding: its error is without bound.
        _, s, V = np.linalg.svd(rows, full_matrices=False)
        if not s[-1] > 1e-13 * s[0]:
            return Spread(math.inf, math.inf)
        root = V.T / s
        of_v = np.linalg.svd(root[1 : d + 1], compute_uv=False) ** 2
        of_W = np.linalg.svd(root[d + 1 :], compute_uv=False) ** 2
        return Spread(_NONLINEAR * scale * _quantile(of_W), _NONLINEAR * scale * _quantile(of_v))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(_DRAWS):
        noise = [rng.standard_normal(r.shape) for r in now.residuals]
        draws.append(_conjugate_gradients(now, now.adjoint(noise), 0.0, exact=1e-3))
    errors = np.array(draws)
    return Spread(
        _NONLINEAR * scale * _drawn_quantile((errors[:, d + 1 :] ** 2).sum(axis=1)),
        _NONLINEAR * scale * _drawn_quantile((errors[:, 1 : d + 1] ** 2).sum(axis=1)),
    )


def _quantile(weights: Array) -> float:
    """Root of the quantile of sum_i weights_i z_i^2: the law a + b chi^2_h of the same mean, variance and skewness."""
    first, second, third = (float((weights**k).sum()) for k in (1, 2, 3))
    if third == 0:
        return 0.0
    h = second**3 / third**2
    return math.sqrt(first + third / second * (2 * float(gammaincinv(h / 2, 1 - _RARELY)) - h))


def _drawn_quantile(squares: Array) -> float:
    mean = float(squares.mean())
    if mean == 0:
        return 0.0
    # Of a few draws the number of effective squares is known to about a quarter.
    effective = max(1.0, 0.75 * 2 * mean**2 / float(squares.var(ddof=1)))
    return math.sqrt(mean * 2 * float(gammaincinv(effective / 2, 1 - _RARELY)) / effective)


def deviation_at_most(deviation: float, freedom: float) -> float:
    """What the true deviation rarely exceeds, if it was estimated from `freedom` independent residuals."""
    return deviation * math.sqrt(freedom / (2 * float(gammaincinv(freedom / 2, _RARELY))))


def saturation(batches: Sequence[Blocks], v: Array, deviation: float) -> float:
    """Mean of (alpha - 1/2)^2 with the part that noise of this deviation adds taken off; 1/4 if all is saturated."""
    seen = []
    for batch in batches:
        base, span = base_and_span(batch, v)
        seen.append((((batch.y - base) / span - 0.5) ** 2 - (deviation / span) ** 2).mean(axis=(1, 2)))
    return float(np.mean(np.concatenate(seen)))


def logits_of(X1: Array, X2: Array, W: Array) -> Array:
    """(x1_l - x2_j)'W x2_j, (K, d, d)."""
    U = X2 @ W.T
    return np.asarray(X1 @ U.transpose(0, 2, 1) - np.einsum("kjd,kjd->kj", X2, U)[:, None, :])


def base_and_span(batch: Blocks, v: Array) -> tuple[Array, Array]:
    """x2.v and (x1 - x2).v of every pair, broadcast to (K, d, d)."""
    base = (batch.X2 @ v)[:, None, :]
    return base, (batch.X1 @ v)[:, :, None] - base


def _paired(batch: Blocks) -> tuple[Array, Array]:
    return batch.X1[:, :, None, :], batch.X2[:, None, :, :]


def _conjugate_gradients(at: Linearised, g: Array, damping: float, exact: float = 1e-9) -> Array:
    """(J'J + damping D) x = g in the units D in which a typical v and W weigh the same."""
    d = len(at.v)
    scale = np.ones_like(g)
    scale[0] = 1 / math.sqrt(sum(r.size for r in at.residuals))
    lengths = sum(float((b.X1**2).sum() + (b.X2**2).sum()) for b in at.batches) * d + float((at.singles.X**2).sum())
    scale[1 : d + 1] = math.sqrt(2 * d / lengths)
    moved = sum(
        float(((weight**2).sum(axis=1) * (b.X2**2).sum(axis=2)).sum())
        for b, weight in zip(at.batches, at.weight, strict=True)
    )
    longest = max(float((b.X1**2).sum(axis=2).max()) for b in at.batches)
    scale[d + 1 :] = d / math.sqrt(max(moved * longest, 1e-300))
    x, r = np.zeros_like(g), g * scale
    p, square = r, float(r @ r)
    goal = exact**2 * square
    for _ in range(4 * len(g) if len(g) < _DENSE else 400):
        if square <= goal:
            break
        Hp = scale * at.adjoint(at.apply(scale * p)) + damping * p
        length = square / float(p @ Hp)
        x, r = x + length * p, r - length * Hp
        before, square = square, float(r @ r)
        p = r + square / before * p
    return scale * x
