"""Does a difference repeat on nearby questions? A changed weight does it nearly the same again, rounding does it anew.

No noise model knows how far a target rounds: biases that are added to keys and values before the softmax are rounded
with them, and of a reference that holds them folded, or leaves a key bias out since no answer shows it, their sizes
are not known. The errors of one question are none of another's all the same, and of either sign alike. Bets on
s = r . r' / |r||r'| for the residuals r of nearby questions are fair whatever their law: prod (1 + lambda s) is at most
1 on average if |s| <= 1 and s has mean 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.designs import Asked
from unsoftmax.comparing.heads import Heads
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes

PHASE = "repeats"
_STAKES = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
"""Parts of the capital that are bet, mixed evenly."""


def log_wealth(bets: Array) -> float:
    """Logarithm of what stakes on these bets, in [-1, 1], have made of 1."""
    return float(np.logaddexp.reduce(np.log1p(_STAKES * bets[:, None]).sum(axis=0)) - np.log(len(_STAKES)))


def agreement(first: Array, second: Array) -> Array:
    """Signs of the products of residuals, of their inner products where answers are vectors."""
    product = first * second
    return np.sign(product if product.ndim == 1 else product.sum(axis=1))


def nearby(X: Array, heads: Heads | None, asked: Asked, rng: np.random.Generator) -> Array:
    """The same questions changed a little; `heads`: those under which they are near ties, and are again."""
    if heads is None:
        return asked.on_grid(X * (1 + COMPARING.nearby * rng.standard_normal(X.shape)))
    parts = np.stack([X[:, 0] - X[:, 1], X[:, 1]], axis=1)
    a, b = (parts * (1 + COMPARING.nearby * rng.standard_normal(X.shape))).transpose(1, 0, 2)
    u = heads.key_directions(b).transpose(1, 0, 2)
    gap = heads.gaps(X).T - np.einsum("bhd,bd->bh", u, a)
    a = a + np.einsum("bdh,bh->bd", np.linalg.pinv(u), gap)
    return asked.on_grid(np.stack([a + b, b], axis=1))


@dataclass(frozen=True, eq=False)
class Doubted:
    """Questions (n, N, d) of one kind and length, their answers, and residuals in units of the noise, (n,) or
    (n, outputs)."""

    kind: str
    X: Array
    y: Array
    z: Array
    sd: Array


@dataclass(frozen=True)
class Repeats:
    """Logarithm of the evidence that the difference repeats, and of each kind what rounding leaves over its model."""

    log_wealth: float
    excess: dict[str, float]
    answers: tuple[tuple[Doubted, Array, Array], ...] = ()
    """What was asked: the questions held again, those nearby, and their answers."""

    def left_by(self, model: Callable[[Array], Array]) -> float:
        """Logarithm of the evidence that what a model leaves of the answers repeats: it is not the whole difference."""
        told: dict[int, Array] = {}
        bets: dict[str, list[Array]] = {}
        for item, X, y in self.answers:
            before = told.get(id(item))
            before = (item.y - model(item.X)) / item.sd if before is None else before
            z = (y - model(X)) / item.sd
            bets.setdefault(item.kind, []).append(_cosine(z, before))
            told[id(item)] = before + z
        return _mean([log_wealth(np.concatenate(parts)) for parts in bets.values()]) if bets else 0.0


def repeats(
    doubted: Sequence[Doubted],
    residual: Callable[[Array, Array], Array],
    heads: Heads | None,
    asked: Asked,
    enough: float,
    rng: np.random.Generator,
) -> Asking[Repeats]:
    """Ask nearby questions until bets have made `enough` of 1, or as many as a change that shows would take.

    `residual` takes questions and answers. What has agreed so far is what the next answer is held against.
    """
    told = [item.z for item in doubted]
    answers: list[tuple[Doubted, Array, Array]] = []
    count = [1] * len(doubted)
    squares = [np.zeros(len(item.X)) for item in doubted]
    bets: dict[str, list[Array]] = {item.kind: [] for item in doubted}
    limit, wealth = COMPARING.first_repeats, 0.0
    while min(_asked(parts) for parts in bets.values()) < limit and wealth < enough:
        for i, item in enumerate(doubted):
            if _asked(bets[item.kind]) >= limit:
                continue
            X = nearby(item.X, heads if item.X.shape[1] == 2 else None, asked, rng)
            y = yield Probes(X, phase=PHASE)
            z = residual(X, y) / item.sd
            answers.append((item, X, y))
            bets[item.kind].append(_cosine(z, told[i]))
            told[i] = told[i] + z
            count[i] += 1
            squares[i] = squares[i] + _mean_square(z - item.z) / 2
        wealth = _mean([log_wealth(np.concatenate(parts)) for parts in bets.values()])
        if wealth > 0:
            limit = COMPARING.most_repeats
    excess: dict[str, float] = {}
    for item, total, n, spread in zip(doubted, told, count, squares, strict=True):
        kept = float(_mean_square(total / n).mean()) if wealth >= enough else 0.0
        own = math.sqrt(max(1.0, float(spread.mean()) / (n - 1) - COMPARING.nearby_change * kept))
        excess[item.kind] = max(excess.get(item.kind, 1.0), own)
    return Repeats(wealth, excess, tuple(answers))


def _asked(parts: Sequence[Array]) -> int:
    return sum(map(len, parts))


def _mean(logarithms: Sequence[float]) -> float:
    """Logarithm of the mean: evidence of several kinds, any of which may be all there is."""
    return float(np.logaddexp.reduce(logarithms)) - math.log(len(logarithms))


def _mean_square(z: Array) -> Array:
    return np.asarray(z**2 if z.ndim == 1 else (z**2).mean(axis=1))


def _cosine(first: Array, second: Array) -> Array:
    if first.ndim == 1:
        return np.sign(first * second)
    size = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(size, 1e-300))
