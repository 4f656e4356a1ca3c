"""Stacks without norms at tokens of ordinary length: W and c of every head, layer by layer, from one set of sequences.

y = x_N + sum_paths M_path sum_j w_j x_j is linear in the paths' weights w, and the weights of the path through a single
head are that head's attention: their log ratios (z_j - z_N)'(W z_N + c) are linear in W and c once z, behind the layers
below, is known.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import PILOT
from unsoftmax.learners.stack.hard import Paths
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.paths import all_paths
from unsoftmax.solvers.plain_stack import Plain, Sequences
from unsoftmax.solvers.star import ranks

_OVER = 1.15
"""Log ratios over the d (d + 1) unknowns of a head."""

_SPARE = 5
"""Sequences beyond that."""

_FILL = 0.8
"""Weights per sequence over the outputs from which they are solved."""

_SPREAD = 1.0
"""Median size of log ratios that is aimed at: weights then are neither equal nor 0 and 1."""

_LENGTHS = 5
"""Lengths tried: each pilot that can be read gives the right one at once, since log ratios grow with its square."""

_READABLE = 1e-5
"""Weights nearer to 0 or 1 are left out: their logarithms have lost digits."""


@dataclass(frozen=True, eq=False)
class Weights:
    """How weights of paths are read: keys and matrices of all paths, and tokens per sequence beside the last."""

    keys: list[tuple[int, ...]]
    M: Array
    others: int
    constant: Array

    def read(self, X: Array, y: Array) -> Array:
        """Attention (B, heads, N) at the last token, from answers y (B, d) to tokens X (B, N, d)."""
        last = X[:, -1]
        rest = y - last - self.constant - last @ self.M.sum(axis=0).T
        columns = np.einsum("pde,bje->bdpj", self.M, X[:, :-1] - last[:, None], optimize=True)
        columns = columns.reshape(len(X), X.shape[2], -1)
        w = (np.linalg.pinv(columns) @ rest[:, :, None]).reshape(len(X), len(self.keys), -1)
        single = [i for i, key in sorted(enumerate(self.keys), key=lambda item: item[1]) if len(key) == 1]
        alpha = w[:, single]
        return np.concatenate([alpha, 1 - alpha.sum(axis=2, keepdims=True)], axis=2)


def read_weights(paths: Paths, one: tuple[Array, Array]) -> Weights:
    """One token x (d,) and its answer give the constant; `others` is what the outputs and the heads' ranges hold."""
    keys, M = all_paths(paths.P)
    d = M.shape[1]
    others, below = int(_FILL * d / len(keys)), 1
    for layer in paths.P:
        rank = ranks(layer)
        others = min(others, int((rank if rank == d else 0.85 * rank) / below))
        below *= 1 + len(layer)
    x, y = one
    return Weights(keys, M, max(others, 1), y - x - M.sum(axis=0) @ x)


def sequences(others: int, d: int) -> int:
    """How many are asked."""
    return int(np.ceil(_OVER * d * (d + 1) / others)) + _SPARE


def ask_soft(weights: Weights, rng: np.random.Generator) -> Asking[Sequences]:
    """Sequences at a length where all heads can be read; y is what is added to the last token."""
    d = weights.M.shape[1]

    def draw(m: int, length: float) -> Array:
        return np.asarray(length * rng.standard_normal((m, weights.others + 1, d)) / np.sqrt(d))

    length = 1.0
    for number in range(_LENGTHS):
        X = draw(PILOT, length)
        y = yield Probes(X, phase="pilot" if number == 0 else "repair")
        alpha = weights.read(X, y)
        readable = _readable(alpha)
        if readable.mean() < 0.7:
            length /= 3
            continue
        size = _typical(alpha, readable)
        factor = float(np.sqrt(_SPREAD / max(size, 1e-6)))
        length *= factor
        if factor < 8:
            break
    X = draw(sequences(weights.others, d), length)
    y = yield Probes(X)
    return Sequences(X, y - X[:, -1])


def _typical(alpha: Array, readable: Array) -> float:
    """Median size of log ratios of the strongest head."""
    sizes = []
    for a, ok in zip(alpha.transpose(1, 0, 2), readable.T, strict=True):
        if ok.any():
            sizes.append(float(np.median(np.abs(np.log(a[ok, :-1] / a[ok, -1:])))))
    return max(sizes)


def solve_soft(paths: Paths, weights: Weights, data: Sequences, causal: bool) -> Plain:
    """All heads, lowest layer first."""
    n, d = sum(map(len, paths.P)), data.y.shape[1]
    P, sizes = np.concatenate(paths.P), tuple(map(len, paths.P))
    W, c = np.zeros((n, d, d)), np.zeros((n, d))
    model = Plain(W, c, P, weights.constant, sizes, causal)
    alpha = weights.read(data.tokens, data.y + data.tokens[:, -1])
    Z = data.tokens
    for rows in model.layers():
        for h in range(rows.start, rows.stop):
            W[h], c[h] = _head(Z, alpha[:, h])
        Z = model.step(Z, rows)
    return model


def _readable(alpha: Array) -> Array:
    """Where no weight (..., N) is too near to 0 or 1."""
    return np.asarray((np.abs(2 * alpha - 1) < 1 - 2 * _READABLE).all(axis=-1))


def _head(Z: Array, alpha: Array) -> tuple[Array, Array]:
    """W (d, d) and c (d,) from tokens Z (B, N, d) and weights (B, N) of the last one, by their log ratios."""
    d = Z.shape[2]
    ok = _readable(alpha)
    if ok.sum() * (Z.shape[1] - 1) < d * (d + 1):
        ok = np.ones(len(ok), bool)
    a, Z = np.clip(alpha[ok], _READABLE, 1 - _READABLE), Z[ok]
    t = np.log(a[:, :-1] / a[:, -1:])
    own = np.column_stack([Z[:, -1], np.ones(len(Z))])
    F = np.einsum("bjd,be->bjde", Z[:, :-1] - Z[:, -1:], own).reshape(-1, d * (d + 1))
    trust = (1 / (1 / a[:, :-1] + 1 / a[:, -1:])).ravel()
    joined = np.linalg.lstsq(F * trust[:, None], t.ravel() * trust, rcond=None)[0].reshape(d, d + 1)
    return joined[:, :-1], joined[:, -1]
