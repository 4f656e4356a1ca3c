"""A stack without norms for Gauss-Newton: z_i <- z_i + sum_h P_h sum_j alpha_ij z_j, scores z_j'(W_h z_i + c_h).

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from unsoftmax.probes.base import Array


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
