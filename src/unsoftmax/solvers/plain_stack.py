"""A stack without norms for Gauss-Newton: z_i <- z_i + sum_h P_h sum_j alpha_ij z_j, scores z_j'(W_h z_i + c_h).

Paths of a stack without norms. Where every head picks one token the answer is x_N + sum_paths M_path x_picked.

A path is a head, or a head above a path: its matrix is the product of its heads' P. Products tell which matrices are
heads and which head lies above which.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import softmax

from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.solvers.layer_order import by_layer
from unsoftmax.solvers.singular import svd

_INSIDE = 1e-5
"""Sine of the angle at which a token's coefficients lie in the responses' column space: others are at order one."""

_EQUAL = 1e-6
"""Relative gap of a product and a path that are the same: both are read to 1e-10."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Tokens (B, N, d) and what the stack added to the last of them, y (B, d)."""

    tokens: Array
    y: Array

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Array | slice) -> Sequences:
        """The sequences at `index`."""
        return Sequences(self.tokens[index], self.y[index])


@dataclass(frozen=True, eq=False)
class Plain:
    """W (n, d, d), c (n, d), P (n, d, d), heads lowest layer first, `sizes` of them by layer; all constants of the
    layers act as one on top (d,), since a constant below only shifts the c and the constants above."""

    W: Array
    c: Array
    P: Array
    constant: Array
    sizes: tuple[int, ...]
    causal: bool

    @property
    def heads(self) -> Plain:
        """Itself: W, c and P of all heads."""
        return self

    @property
    def flat(self) -> Array:
        return np.concatenate([self.W.ravel(), self.c.ravel(), self.P.ravel(), self.constant])

    def like(self, flat: Array) -> Plain:
        W, c, P, constant = np.split(flat, np.cumsum([self.W.size, self.c.size, self.P.size]))
        W, c, P = W.reshape(self.W.shape), c.reshape(self.c.shape), P.reshape(self.P.shape)
        return Plain(W, c, P, constant, self.sizes, self.causal)

    def answers(self, data: Sequences) -> Array:
        """(B, d)."""
        X = data.tokens
        for rows in self.layers():
            X = self.step(X, rows)
        return np.asarray(X[:, -1] - data.tokens[:, -1] + self.constant)

    def layers(self) -> Iterator[slice]:
        """Heads of every layer, lowest first."""
        stops = np.cumsum(self.sizes).tolist()
        for size, stop in zip(self.sizes, stops, strict=True):
            yield slice(stop - size, stop)

    def step(self, X: Array, rows: slice) -> Array:
        """All tokens (B, N, d) behind one layer."""
        _, _, mixed = self._attend(X, rows)
        return np.asarray(X + np.einsum("hde,bhie->bid", self.P[rows], mixed, optimize=True))

    def _attend(self, X: Array, rows: slice) -> tuple[Array, Array, Array]:
        """u (B, H, N, d), alpha (B, H, N, N) and mixed tokens (B, H, N, d) of one layer."""
        u = np.einsum("hde,bie->bhid", self.W[rows], X, optimize=True) + self.c[rows, None]
        scores = u @ X.transpose(0, 2, 1)[:, None]
        if self.causal:
            scores = np.where(np.tri(X.shape[1], dtype=bool), scores, -np.inf)
        alpha = softmax(scores, axis=-1)
        return u, alpha, alpha @ X[:, None]

    def jacobian(self, data: Sequences) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters), followed from the answer down through the layers."""
        X, inputs = data.tokens, []
        for rows in self.layers():
            inputs.append((rows, X))
            X = self.step(X, rows)
        B, N, d = X.shape
        G = np.zeros((B, d, N, d))
        G[:, :, -1] = np.eye(d)
        by_W, by_c, by_P = (np.zeros((B, d, *part.shape)) for part in (self.W, self.c, self.P))
        for rows, Z in reversed(inputs):
            u, alpha, mixed = self._attend(Z, rows)
            by_P[:, :, rows] = np.einsum("beid,bhif->behdf", G, mixed, optimize=True)
            g = np.einsum("beid,hdf->behif", G, self.P[rows], optimize=True)
            # By a score: alpha_ij g_i'(z_j - mixed_i).
            S = alpha[:, None] * (g @ Z.transpose(0, 2, 1)[:, None, None] - (g * mixed[:, None]).sum(-1, keepdims=True))
            by_u = S @ Z[:, None, None]
            by_W[:, :, rows] = np.einsum("behid,bif->behdf", by_u, Z, optimize=True)
            by_c[:, :, rows] = by_u.sum(axis=3)
            through = np.einsum("bhij,behid->bejd", alpha, g, optimize=True)
            as_key = np.einsum("behij,bhid->bejd", S, u, optimize=True)
            as_query = np.einsum("behid,hdf->beif", by_u, self.W[rows], optimize=True)
            G = G + through + as_key + as_query
        blocks = [by_W.reshape(B, d, -1), by_c.reshape(B, d, -1), by_P.reshape(B, d, -1)]
        blocks.append(np.broadcast_to(np.eye(d), (B, d, d)))
        return X[:, -1] - data.tokens[:, -1] + self.constant, np.concatenate(blocks, axis=2)


def picked(C: Array, Y: Array) -> tuple[Array, Array] | None:
    """Tokens (m,) and their signatures (m, d) from responses Y (K, d) = C[:, tokens] signatures; C (K, n) are random.

    None while there are too few responses to tell, or if no set of tokens explains them.
    """
    U, s, _ = svd(Y, full_matrices=False)
    # Roundings of tokens moved by 2^-16 of their length leave 1e-10.
    m = int((s > HALF_DIGITS * s[0]).sum()) if s[0] > 0 else 0
    if m > len(Y) - 2:
        return None
    outside = C - U[:, :m] @ (U[:, :m].T @ C)
    sine = np.linalg.norm(outside, axis=0) / np.maximum(np.linalg.norm(C, axis=0), 1e-300)
    tokens = np.flatnonzero((sine < _INSIDE) & C.any(axis=0))
    if len(tokens) != m:
        return None
    return tokens, np.linalg.lstsq(C[:, tokens], Y, rcond=None)[0]


def same_set(first: Array, second: Array) -> bool:
    """Whether two lists of signatures (m, d) are the same up to their order."""
    if len(first) != len(second):
        return False
    apart = np.linalg.norm(first[:, None] - second[None], axis=2)
    alike = apart < _EQUAL * np.linalg.norm(first, axis=1)[:, None]
    return bool((alike.sum(axis=0) == 1).all() and (alike.sum(axis=1) == 1).all())


def heads_of(M: Array) -> list[list[int]] | None:
    """Paths M (m, d, d) that are heads, by layer, lowest first; None unless all others are exactly their products."""
    m = len(M)
    flat = M.reshape(m, -1)
    products = np.einsum("aij,bjk->abik", M, M).reshape(m, m, -1)
    apart = np.linalg.norm(products[:, :, None] - flat, axis=3)
    made = np.where(apart.min(axis=2) <= _EQUAL * np.linalg.norm(products, axis=2), apart.argmin(axis=2), -1)
    primes = [k for k in range(m) if not (made == k).any()]
    layers = by_layer(made[np.ix_(primes, primes)] >= 0)
    if layers is None or m != np.prod([1 + len(layer) for layer in layers]) - 1:
        return None
    found = [[primes[i] for i in layer] for layer in layers]
    _, expected = all_paths([M[layer] for layer in found])
    gaps = np.linalg.norm(expected.reshape(m, 1, -1) - flat, axis=2)
    near = gaps.argmin(axis=1)
    close = gaps.min(axis=1) <= _EQUAL * np.linalg.norm(flat[near], axis=1)
    return found if close.all() and len(set(near.tolist())) == m else None


def all_paths(P: list[Array]) -> tuple[list[tuple[int, ...]], Array]:
    """Paths as numbers of heads from the highest down, and their matrices (m, d, d); P (H, d, d) by layer."""
    d = P[0].shape[-1]
    starts = np.cumsum([0] + [len(layer) for layer in P])
    keys: list[tuple[int, ...]] = [()]
    matrices = [np.eye(d)]
    for layer, (start, stop) in zip(P, pairwise(starts.tolist()), strict=True):
        above = [(h, layer[h - start]) for h in range(start, stop)]
        keys, matrices = (
            keys + [(h, *key) for h, _ in above for key in keys],
            matrices + [p @ M for _, p in above for M in matrices],
        )
    return keys[1:], np.array(matrices[1:])
