"""How large is a change without structure? Norms of dW from near ties in all directions, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.reading import Reading
from unsoftmax.models.base import Array

_KURTOSIS = 8.0
"""Derived: variance of a squared a'dW b over its squared mean is 8 for a change of rank one, 2 for a dense one: the
worst."""


@dataclass(frozen=True)
class Size:
    """A relative norm with an interval that covers it in at least 95 of 100 cases; `high` may be infinite."""

    estimate: float
    low: float
    high: float

    def facts(self) -> dict[str, float | None]:
        return {"relative": self.estimate, "low": self.low, "high": self.high if math.isfinite(self.high) else None}


def interval(squares: Array, noise: Array, norm: float) -> Size:
    """From n values whose mean is the squared norm of the change plus that of the noise."""
    n = max(1, len(squares))
    mean = float(squares.mean()) if len(squares) else 0.0
    estimate = math.sqrt(max(mean - float(noise.mean()) if len(noise) else mean, 0.0)) / norm
    spread = math.sqrt(_KURTOSIS / n)
    top = math.sqrt(mean) / norm
    low = math.sqrt(max(estimate, 0.0) ** 2 / (1 + EXPLAINING.lower_end * spread))
    return Size(estimate, low, top / math.sqrt(max(1 - EXPLAINING.upper_end[0] * spread, EXPLAINING.upper_end[1])))


@dataclass(frozen=True)
class Gap:
    """Relative difference of answers from the reference's: as they are, and up to a scale and a shift."""

    plain: float
    scale: float
    scaled: float

    @property
    def scaled_only(self) -> bool:
        """Whether another scale makes far answers near: they are no other model's."""
        return self.plain > EXPLAINING.other_model >= self.scaled

    @property
    def words(self) -> str:
        return (
            f"The answers are the reference's scaled by about {self.scale:.4g}, and {self.scaled:.1g} of their size "
            "differs besides; that is not one of the changes that are told."
        )


def gap_of(y: Array, truth: Array) -> Gap:
    """From answers and the reference's, (n,) or (n, outputs)."""
    rms = lambda x: float(np.sqrt(np.mean(x**2)))  # noqa: E731
    f, g = truth - truth.mean(axis=0), y - y.mean(axis=0)
    size = float((f * f).sum())
    scale = float((f * g).sum()) / size if size > 0 else 0.0
    scaled = rms(g - scale * f) / (abs(scale) * rms(f)) if scale else math.inf
    return Gap(rms(y - truth) / max(rms(truth), 1e-150), scale, scaled)


def size_of_scores(heads: Heads, h: int, read: Reading) -> Size:
    """|dW_h| / |W_h| from readings of one head at directions that are as good as isotropic."""
    lengths = np.linalg.norm(read.a, axis=1) * np.linalg.norm(read.b, axis=1)
    use = np.isfinite(read.sd)
    scale = (heads.dim / lengths[use]) ** 2
    size = interval(read.D[use] ** 2 * scale, read.sd[use] ** 2 * scale, float(np.linalg.norm(heads.W[h])) or 1.0)
    return size if use.mean() >= 1 - EXPLAINING.most_shut else replace(size, high=math.inf)


def size_of_all_scores(heads: Heads, X: Array, residual: Array, sd: Array) -> Size:
    """|dW| / |W| of all scalar heads together from near ties X (n, 2, d) under all of them, none of which is isolated.

    Directions that other heads write are among these, which near ties of one head alone leave out: errors of a copy
    recovered from answers lie there.
    """
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    t = heads.gaps(X)
    effect = np.abs(a @ heads.P[:, 0].T).T / (2 + np.exp(t) + np.exp(-t))
    norms = np.linalg.norm(heads.W, axis=(1, 2))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) / heads.dim
    # The answer if every head changed by its own size, at random.
    whole = np.maximum(np.sqrt(((effect * norms[:, None]) ** 2).sum(axis=0)) * lengths, 1e-150)
    return interval((residual / whole) ** 2, (sd / whole) ** 2, 1.0)
