"""SOLVE many noisy answers at once by least squares, without inverting a single one.

A logit of a noisy answer is biased, and an answer near saturation tells nothing. All answers are explained together
instead, by v, W and two errors that all of them may share: a constant c, and one that follows the sign of the answer,
as that of truncated digits does: answer = c + e sign(f) + f. Sequences are asked as they are or negated (f is odd), so
that c can be told from everything else, and at many sizes of f, so that e can. Answers of exactly 0 are left out: a
service may swallow small ones.

What noise leaves in a least squares fit of many answers: how far v and W may be off, and how large the noise is.

Theory: docs/theory/approximate.md, "Noise that is not told", stochastic noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaincinv

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import STEPS, conjugate_gradients
from unsoftmax.solvers.singular import svd

SHARED = 2
"""Unknowns beside v and W: the errors that all answers share."""

_ENOUGH = 1e-6
"""Least squares end where a step gains this share of one answer's variance: it is then a thousandth of the error."""

_RARELY = 1e-4
"""Probability with which a stated quantile is exceeded."""

_DENSE = 300
"""Unknowns up to which the law of the error is computed from all singular values (d <= 16); it is drawn beyond."""

_DRAWS = 48
"""Draws of the error where its law is not computed: their mean square is right to about a tenth of its root, 1 / sqrt(2
* 48)."""

_USED_BLOCKS = 16
"""Random designs that stand for all, so that memory does not grow with the records; each has many rows, and their mean
is right to a tenth or better."""

_NONLINEAR = 1.05
"""What is beyond first order in an error, of which the bound is the once-in-10^4 quantile."""


@dataclass(frozen=True)
class Spread:
    """What errors of deviation 1 in the answers leave in W and in v: quantiles of ||W^ - W||_F and of ||v^ - v||."""

    W: float
    v: float


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
    """The least squares solution: v (d,), W (d, d), the shared errors c and e, the squares left by N - p answers."""

    v: Array
    W: Array
    constant: float
    away: float
    squares: float
    freedom: int


def fit(singles: Singles, batches: Sequence[Blocks], v: Array, W: Array) -> Fit:
    """Gauss-Newton from (v, W), damped where a step does not help."""
    d = len(v)
    now = Linearised(singles, batches, np.zeros(SHARED), v, W)
    freedom = sum(int(kept.sum()) for kept in now.kept) - (d * d + d + SHARED)
    damping = 0.0
    for _ in range(STEPS):
        gradient = now.adjoint(now.residuals)
        step = solved(now, gradient, damping)
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
    return Fit(now.v, now.W, float(now.shared[0]), float(now.shared[1]), now.squares, freedom)


class Linearised:
    """All answers around (c, e, v, W): residuals, and their derivative J and its adjoint, never formed as a matrix.

    `away` are the signs of the answers by the first v and W: they stay while these move.
    """

    def __init__(
        self,
        singles: Singles,
        batches: Sequence[Blocks],
        shared: Array,
        v: Array,
        W: Array,
        away: list[Array] | None = None,
    ) -> None:
        self.singles, self.batches = singles, batches
        self.shared, self.v, self.W = shared, v, W
        self.alpha = [expit(logits_of(batch.X1, batch.X2, W)) for batch in batches]
        self.weight, predicted = [], [singles.X @ v]
        for batch, alpha in zip(batches, self.alpha, strict=True):
            base, span = base_and_span(batch, v)
            self.weight.append(span * alpha * (1 - alpha))
            predicted.append(base + alpha * span)
        self.away = [np.sign(f) for f in predicted] if away is None else away
        common = self._common(shared)
        answers = [singles.y, *(batch.y for batch in batches)]
        self.kept = [y != 0 for y in answers]
        self.residuals = [k * (y - f - e) for k, y, f, e in zip(self.kept, answers, predicted, common, strict=True)]
        self.squares = float(sum((r**2).sum() for r in self.residuals))

    def _common(self, shared: Array) -> list[Array]:
        """What the shared errors add to the answers times sign."""
        signs = [self.singles.sign, *(batch.sign for batch in self.batches)]
        return [shared[0] * sign + shared[1] * away for sign, away in zip(signs, self.away, strict=True)]

    @property
    def size(self) -> float:
        """Length of the parameters."""
        return math.sqrt(float(self.v @ self.v) + float((self.W**2).sum()) + float(self.shared @ self.shared))

    def moved(self, step: Array) -> Linearised:
        shared, v, W = self._parts(step)
        return Linearised(self.singles, self.batches, self.shared + shared, self.v + v, self.W + W, self.away)

    def _parts(self, x: Array) -> tuple[Array, Array, Array]:
        d = len(self.v)
        return x[:SHARED], x[SHARED : SHARED + d], x[SHARED + d :].reshape(d, d)

    def apply(self, x: Array) -> list[Array]:
        """J x for x = (dc, de, dv, dW)."""
        shared, dv, dW = self._parts(x)
        first, *common = self._common(shared)
        out = [self.singles.X @ dv + first]
        for batch, alpha, weight, add in zip(self.batches, self.alpha, self.weight, common, strict=True):
            mixed = alpha * (batch.X1 @ dv)[:, :, None] + (1 - alpha) * (batch.X2 @ dv)[:, None, :]
            out.append(mixed + weight * logits_of(batch.X1, batch.X2, dW) + add)
        return [kept * part for kept, part in zip(self.kept, out, strict=True)]

    def adjoint(self, r: Sequence[Array]) -> Array:
        """J'r."""
        r = [kept * part for kept, part in zip(self.kept, r, strict=True)]
        signs = [self.singles.sign, *(batch.sign for batch in self.batches)]
        shared = [sum(float((x * part).sum()) for x, part in zip(xs, r, strict=True)) for xs in (signs, self.away)]
        dv, dW = self.singles.X.T @ r[0], np.zeros_like(self.W)
        for batch, alpha, weight, part in zip(self.batches, self.alpha, self.weight, r[1:], strict=True):
            first, second = (alpha * part).sum(axis=2), ((1 - alpha) * part).sum(axis=1)
            dv = dv + np.einsum("kld,kl->d", batch.X1, first) + np.einsum("kjd,kj->d", batch.X2, second)
            turned = weight * part
            along = batch.X1.transpose(0, 2, 1) @ turned - batch.X2.transpose(0, 2, 1) * turned.sum(axis=1)[:, None, :]
            dW += np.tensordot(along, batch.X2, axes=([0, 2], [0, 1]))
        return np.concatenate([shared, dv, dW.ravel()])

    def rows(self) -> Array:
        """J itself (N, p), for few unknowns."""
        unit = np.eye(SHARED + self.v.size + self.W.size)
        return np.column_stack([np.concatenate([part.ravel() for part in self.apply(e)]) for e in unit])


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


def solved(at: Linearised, g: Array, damping: float, exact: float = 1e-9) -> Array:
    """(J'J + damping D) x = g in the units D in which a typical v and W weigh the same."""
    d = len(at.v)
    scale = np.ones_like(g)
    scale[:SHARED] = 1 / math.sqrt(sum(r.size for r in at.residuals))
    lengths = sum(float((b.X1**2).sum() + (b.X2**2).sum()) for b in at.batches) * d + float((at.singles.X**2).sum())
    scale[SHARED : SHARED + d] = math.sqrt(2 * d / lengths)
    moved = sum(
        float(((weight**2).sum(axis=1) * (b.X2**2).sum(axis=2)).sum())
        for b, weight in zip(at.batches, at.weight, strict=True)
    )
    longest = max(float((b.X1**2).sum(axis=2).max()) for b in at.batches)
    scale[SHARED + d :] = d / math.sqrt(max(moved * longest, 1e-300))
    most = 4 * len(g) if len(g) < 100 else 400

    def product(p: Array) -> Array:
        return np.asarray(scale * at.adjoint(at.apply(scale * p)) + damping * p)

    return scale * conjugate_gradients(product, g * scale, lambda r: r, most, exact)[0]


def spread(singles: Singles, batches: Sequence[Blocks], v: Array, W: Array) -> Spread:
    """Quantiles once exceeded in 10^4, from some of the designs standing for all."""
    d = len(v)
    total = sum(len(batch.y) for batch in batches)
    step = max(1, total // max(_USED_BLOCKS, math.ceil(3 * _DENSE / (d * d + d)) if d < 8 else 0))
    thin = [batch.thinned(step) for batch in batches]
    kept = sum(len(batch.y) for batch in thin)
    few = Singles(singles.X[::step], singles.sign[::step], singles.y[::step])
    scale = math.sqrt(kept / total)
    now = Linearised(few, thin, np.zeros(SHARED), v, W)
    law: Callable[[Array], float]
    if d * d + d + SHARED <= _DENSE:
        # The smallest singular value of a direction nobody probed is rounding: its error is without bound.
        _, s, V = svd(now.rows(), full_matrices=False)
        if not s[-1] > 1e-13 * s[0]:
            return Spread(math.inf, math.inf)
        root = V.T / s
        parts = [np.linalg.svd(part, compute_uv=False) ** 2 for part in (root[SHARED + d :], root[SHARED : SHARED + d])]
        law = _quantile
    else:
        rng = np.random.default_rng(0)
        noise = ([rng.standard_normal(r.shape) for r in now.residuals] for _ in range(_DRAWS))
        errors = np.array([solved(now, now.adjoint(part), 0.0, exact=1e-3) for part in noise])
        parts = [(part**2).sum(axis=1) for part in (errors[:, SHARED + d :], errors[:, SHARED : SHARED + d])]
        law = _drawn_quantile
    of_W, of_v = (_NONLINEAR * scale * law(part) for part in parts)
    return Spread(of_W, of_v)


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
