"""Which starts to try for which class, the likeliest first. Each recipe is an endless or long stream of attempts.

Starts for several heads: every answer as a sum of one token's value per head, plus noise that falls.

Mean-field EM: the picks of one head given the mean values of the others (E), values by least squares and scores by a
few L-BFGS steps on the cross entropy of the picks (M), while the noise s falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, count, islice

import numpy as np

from unsoftmax.fitting import mixture
from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.heads import Eliminated
from unsoftmax.fitting.search import BOLD, FAST, SLOW, Attempt, Search
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import descend


class _Picks:
    """State of the EM: scores W (H, d, d), values P (H, m, d), and picks rho, one (H, b, N) array per block."""

    def __init__(self, blocks: Blocks, shape: Shape, W: Array) -> None:
        self.blocks, self.shape, self.W = blocks, shape, W
        self.rho = [np.exp(log) for log in self._logs(W)]
        self.P: Array = np.zeros((shape.heads, shape.outputs, shape.dim))
        self.values()

    def _logs(self, W: Array) -> list[Array]:
        u = [self.blocks.q @ Wh.T for Wh in W]
        return [np.stack([attend(block, each[block.rows])[0] for each in u]) for block in self.blocks]

    def choose(self, s: float, rng: np.random.Generator) -> None:
        """E step: each head's picks given what the others contribute on average."""
        H = self.shape.heads
        for block, log, rho in zip(self.blocks, self._logs(self.W), self.rho, strict=True):
            values = np.stack([block.tokens @ P.T for P in self.P])
            means = np.einsum("hbn,hbnm->hbm", rho, values)
            for h in np.concatenate([rng.permutation(H) for _ in range(FITTING.em_sweeps)]):
                wanted = self.blocks.y[block.rows] - means.sum(axis=0) + means[h]
                joint = log[h] - ((wanted[:, None] - values[h]) ** 2).sum(axis=2) / (2 * s * s)
                share = np.exp(joint - joint.max(axis=1, keepdims=True))
                rho[h] = share / share.sum(axis=1, keepdims=True)
                means[h] = np.einsum("bn,bnm->bm", rho[h], values[h])

    def values(self) -> None:
        """M step for P: least squares on the expected picks, their spread included."""
        H, d = self.shape.heads, self.shape.dim
        A, b = np.zeros((H * d, H * d)), np.zeros((H * d, self.shape.outputs))
        for block, rho in zip(self.blocks, self.rho, strict=True):
            Z = np.concatenate([np.matmul(r[:, None], block.tokens)[:, 0] for r in rho], axis=1)
            A += Z.T @ Z
            b += Z.T @ self.blocks.y[block.rows]
            flat = block.tokens.reshape(-1, d)
            for h, r in enumerate(rho):
                part = slice(h * d, (h + 1) * d)
                A[part, part] += (flat * r.reshape(-1, 1)).T @ flat - Z[:, part].T @ Z[:, part]
        A[np.diag_indices(H * d)] += 1e-6 * np.trace(A) / (H * d)
        self.P = np.linalg.solve(A, b).T.reshape(self.shape.outputs, H, d).transpose(1, 0, 2)

    def cross_entropy(self, flat: Array, ridge: float) -> tuple[float, Array]:
        """M step for W: mean of -sum rho log alpha with a ridge, and its gradient."""
        W, n, d = flat.reshape(self.W.shape), len(self.blocks), self.shape.dim
        loss, pull = 0.0, np.empty((len(W), n, d))
        for block, log, rho in zip(self.blocks, self._logs(W), self.rho, strict=True):
            loss -= float((rho * np.where(np.isfinite(log), log, 0.0)).sum())
            for h in range(len(W)):
                pull[h, block.rows] = np.matmul((rho[h] - np.exp(log[h]))[:, None], block.tokens)[:, 0]
        gradient = -np.stack([each.T @ self.blocks.q for each in pull]).ravel() / n + ridge / d * flat
        return loss / n + 0.5 * ridge / d * float(flat @ flat), gradient


def recipe(search: Search, rng: np.random.Generator) -> Iterator[Attempt]:
    """The attempts for the class of the search's shape."""
    shape = search.problem.shape
    if shape.outputs > 1:
        return _layers(search, rng)
    if shape.heads > 1:
        return _several(search, rng)
    return _single(search) if shape.rank is None else _low_rank(search, rng)


def _single(search: Search) -> Iterator[Attempt]:
    """One head: plain descent from scores 0, then mixture starts, each read in two orders."""
    shape, blocks = search.problem.shape, search.problem.blocks
    start = np.concatenate([np.zeros(shape.scores), mixture.regressed(blocks, shape).ravel()])
    yield ("from scores 0", *search.descend(start, BOLD if search.large else SLOW))
    best, same = np.inf, 0
    for ridge in FITTING.ridges:
        costs = []
        for hot in mixture.levels(blocks, shape, start, ridge * search.token_square() ** 2):
            for x, cost in _both_orders(search, hot):
                yield f"mixture, ridge {ridge:g}", x, cost
                costs.append(cost)
        agreed = min(costs) <= best * (1 + FITTING.same_minimum) and best <= min(costs) * (1 + FITTING.same_minimum)
        same, best = same + 1 if agreed else 1, min(best, *costs)
        if same >= FITTING.same_rounds:
            break
    if same < FITTING.same_rounds or not search.large:
        yield from _random_single(search)


def _random_single(search: Search) -> Iterator[Attempt]:
    """Random scores of growing size, and mixtures from random scores: those from 0 may agree on another minimum.

    Of few ids that is seen: two random starts in five arrived where all mixtures had ended in the same other minimum.
    In conversations, whose sequences begin alike, none arrived, and one to four random mixtures in ten.
    """
    rng, blocks, shape = np.random.default_rng(0x51), search.problem.blocks, search.problem.shape
    for number in range(20):
        W = _random_scores(search, rng, FITTING.start_scores * (1 + number % 4))
        yield ("random scores", *search.descend(_with_values(search, W), BOLD))
        start = _with_values(search, _random_scores(search, rng, FITTING.start_scores))
        ridge = FITTING.ridges[number % 4]
        *_, hot = mixture.levels(blocks, shape, start, ridge * search.token_square() ** 2)
        yield (f"random mixture, ridge {ridge:g}", *search.descend(hot, FAST))


def _both_orders(search: Search, x: Array) -> Iterator[tuple[Array, float]]:
    """Residuals first and scores after, then the other way round."""
    first, cost = search.descend(x, FAST)
    yield first, cost
    yield search.descend(first, FAST, cap=3.0)
    second, cost = search.descend(x, FAST, cap=1.0)
    yield second, cost
    yield search.descend(second, FAST)


def _low_rank(search: Search, rng: np.random.Generator) -> Iterator[Attempt]:
    """Random factors with one column to spare, truncated; in turn with mixture starts in the factors."""
    shape, blocks = search.problem.shape, search.problem.blocks
    assert shape.rank is not None
    wider = search.like(replace(shape, rank=min(shape.rank + 1, shape.dim)))
    values = mixture.regressed(blocks, shape).ravel()
    if search.large:
        yield from _large_low_rank(search, values, rng)
    for number in count():
        x = np.concatenate([_random_factors(wider, rng), values])
        W, _, P = wider.problem.shape.split(wider.descend(x, BOLD)[0])
        yield ("one column more", *search.descend(shape.joined(W, P), FAST))
        start = np.concatenate([_random_factors(search, rng), values])
        ridge = FITTING.ridges[number % 3] * search.token_square()
        for hot in islice(mixture.levels(blocks, shape, start, ridge), 4):
            yield (f"mixture, ridge {FITTING.ridges[number % 3]:g}", *search.descend(hot, BOLD))


def _large_low_rank(search: Search, values: Array, rng: np.random.Generator) -> Iterator[Attempt]:
    """Random factors without a spare column: with many columns none of them is stuck, and a step is expensive."""
    for _ in range(4):
        yield ("random factors", *search.descend(np.concatenate([_random_factors(search, rng), values]), BOLD))


def _random_factors(search: Search, rng: np.random.Generator) -> Array:
    shape = search.problem.shape
    assert shape.rank is not None
    size = np.sqrt(FITTING.start_factors / (shape.dim * search.token_square())) / shape.rank**0.25
    return rng.standard_normal(shape.scores) * size


def _several(search: Search, rng: np.random.Generator) -> Iterator[Attempt]:
    """Random scores, one head to spare, and factorial mixtures, in turn."""
    shape, blocks = search.problem.shape, search.problem.blocks
    for number in count():
        x, cost = search.descend(_with_values(search, _random_scores(search, rng, FITTING.start_scores)), BOLD)
        yield "random scores", x, cost
        yield ("one head more", *_spared(search, rng))
        W = _random_scores(search, rng, 1.0)
        ridge = (0.3, 0.1)[number % 2]
        for hot in levels(blocks, shape, W, ridge * search.token_square() ** 2, rng):
            yield (f"factorial mixture, ridge {ridge:g}", *search.descend(hot, FAST))


def _spared(search: Search, rng: np.random.Generator) -> tuple[Array, float]:
    """A fit of one head more, then the best of what is left without one."""
    wider = search.like(replace(search.problem.shape, heads=search.problem.shape.heads + 1))
    x, _ = wider.descend(_with_values(wider, _random_scores(wider, rng, FITTING.start_scores)), BOLD)
    return smaller(wider, x, search)


def smaller(wider: Search, x: Array, search: Search) -> tuple[Array, float]:
    """The best descent with one head fewer: the weakest left out, the second weakest, or the two most alike merged."""
    W, _, P = wider.problem.shape.split(x)
    best: tuple[Array, float] = (np.zeros(search.problem.shape.unknowns), np.inf)
    for keep, values in _fewer(W, P):
        end = search.descend(search.problem.shape.joined(W[keep], values), FAST)
        best = min(best, end, key=lambda found: found[1])
        if best[1] <= search.arrived:
            break
    return best


def _fewer(W: Array, P: Array) -> Iterator[tuple[list[int], Array]]:
    heads = range(len(W))
    for weak in np.argsort(np.linalg.norm(P, axis=(1, 2)), kind="stable")[:2]:
        keep = [h for h in heads if h != weak]
        yield keep, P[keep]
    a, b = min(combinations(heads, 2), key=lambda pair: float(np.linalg.norm(W[pair[0]] - W[pair[1]])))
    keep, merged = [h for h in heads if h != b], P.copy()
    merged[a] += P[b]
    yield keep, merged[keep]


def _layers(search: Search, rng: np.random.Generator) -> Iterator[Attempt]:
    """Vector answers: many quick descents with P eliminated, the last digits with P back in."""
    shape = search.problem.shape
    inner = Eliminated(search.problem)
    while True:
        if shape.rank is None:
            start = _random_scores(search, rng, FITTING.start_scores).ravel()
        else:
            start = _random_factors(search, rng)
        end = descend(inner, start, replace(BOLD, arrived=search.arrived))
        yield "P eliminated", np.concatenate([end.x, inner.best(end.x)[0].ravel()]), end.cost


def _random_scores(search: Search, rng: np.random.Generator, size: float) -> Array:
    shape: Shape = search.problem.shape
    return rng.standard_normal((shape.heads, shape.dim, shape.dim)) * (size / (shape.dim * search.token_square()))


def _with_values(search: Search, W: Array) -> Array:
    """Scores and the best values for them, as one vector."""
    shape = search.problem.shape
    scores = shape.joined(W, np.zeros((shape.heads, shape.outputs, shape.dim)))[: shape.scores]
    return np.concatenate([scores, Eliminated(search.problem).best(scores)[0].ravel()])


def levels(blocks: Blocks, shape: Shape, W: Array, ridge: float, rng: np.random.Generator) -> Iterator[Array]:
    """Unknowns after every level from scores W (H, d, d)."""
    from scipy.optimize import minimize  # a slow import, seldom needed

    picks = _Picks(blocks, shape, W)
    unit = float(np.sqrt((blocks.y**2).mean())) or 1.0
    for level in FITTING.em_levels:
        for _ in range(FITTING.em_rounds):
            picks.choose(level * unit, rng)
            picks.values()
            picks.W = minimize(
                picks.cross_entropy, picks.W.ravel(), args=(ridge,), jac=True, method="L-BFGS-B", options={"maxiter": 6}
            ).x.reshape(W.shape)
        yield shape.joined(picks.W, picks.P)
