"""Multi-head attention with scalar output: f(X) = constant + sum_h softmax(x_i . (W_h x_N + c_h)) . (X v_h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import (
    Array,
    Model,
    attention_weights,
    floating,
    random_matrix,
    random_vector,
    tokens_of,
)


@dataclass(frozen=True, eq=False)
class MultiHead(Model):
    """W (H, d, d), v (H, d); optional key offsets c (H, d) and output constant. H may be 0: then f = constant."""

    W: Array
    v: Array
    c: Array | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 3))
        object.__setattr__(self, "v", floating(self.v, "v", 2))
        if self.W.shape != (self.heads, self.dim, self.dim):
            raise InvalidArgument(
                f"`W` must have shape ({self.heads}, {self.dim}, {self.dim}) to go with v (got {self.W.shape})."
            )
        if self.c is not None:
            object.__setattr__(self, "c", floating(self.c, "c", 2))
            if self.c.shape != self.v.shape:
                raise InvalidArgument(f"`c` must have shape {self.v.shape} like v (got {self.c.shape}).")

    @property
    def dim(self) -> int:
        return self.v.shape[1]

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.v.shape[0]

    def key_directions(self, q: Array) -> Array:
        u = np.matmul(q[None], self.W.transpose(0, 2, 1))
        return u if self.c is None else u + self.c[:, None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        X = tokens_of(tokens, self.dim, self.v.dtype)
        total = np.full(len(X), self.constant, dtype=self.v.dtype)
        for u, v in zip(self.key_directions(X[:, -1]), self.v, strict=True):
            weights = attention_weights((X @ u[:, :, None])[:, :, 0], counts)
            total += (weights * (X @ v)).sum(axis=1)
        return total

    @classmethod
    def random(
        cls, dim: int, heads: int, *, rank: int | None = None, norm: float = 1.0, sparsity: float = 0.0, seed: int = 0
    ) -> Self:
        """`heads` independent Gaussian heads: W_h of spectral norm `norm` (and rank), unit v_h."""
        rng = np.random.default_rng(seed)
        pairs = [(random_matrix(dim, rank, norm, rng), random_vector(dim, sparsity, rng)) for _ in range(heads)]
        W = np.array([W for W, _ in pairs]).reshape(heads, dim, dim)
        return cls(W, np.array([v for _, v in pairs]).reshape(heads, dim))
