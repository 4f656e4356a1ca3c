"""One-layer Transformer with several heads: every head's output enters a two-layer ReLU network by its own weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, random_matrix, seeded, tokens_of
from unsoftmax.models.relu_network import ReluNetwork


@dataclass(frozen=True, eq=False)
class MultiHeadTransformer(Model):
    """TF(X) = w_o . ReLU(sum_h A_h'z_h + b) + sum_h lin_h . z_h + b_o, z_h = sum_i softmax_i(x_i'W_h x_N) x_i.

    W (H, d, d), A (H, d, m), w_o (m,); optional b (m,), b_o, lin (H, d).
    """

    W: Array
    A: Array
    w_o: Array
    b: Array | None = None
    b_o: float = 0.0
    lin: Array | None = None

    def __post_init__(self) -> None:
        for name, ndim in (("W", 3), ("A", 3), ("w_o", 1), ("b", 1), ("lin", 2)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, floating(value, name, ndim))
        shapes = {
            "W": (self.heads, self.dim, self.dim),
            "A": (self.heads, self.dim, len(self.w_o)),
            "b": (len(self.w_o),),
            "lin": (self.heads, self.dim),
        }
        for name, shape in shapes.items():
            if (value := getattr(self, name)) is not None and value.shape != shape:
                raise InvalidArgument(f"`{name}` must have shape {shape} to go with the others (got {value.shape}).")

    @property
    def dim(self) -> int:
        return self.A.shape[1]

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.A.shape[0]

    @property
    def network(self) -> ReluNetwork:
        """What single tokens see: all heads return the token itself."""
        return ReluNetwork(self.A.sum(0), self.w_o, self.b, self.b_o, None if self.lin is None else self.lin.sum(0))

    def key_directions(self, q: Array) -> Array:
        return np.matmul(q[None], self.W.transpose(0, 2, 1))

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        X = tokens_of(tokens, self.dim, self.w_o.dtype)
        hidden = np.zeros((len(X), len(self.w_o)), dtype=self.w_o.dtype)
        y = np.full(len(X), self.b_o, dtype=self.w_o.dtype)
        for h, u in enumerate(self.key_directions(X[:, -1])):
            weights = attention_weights((X @ u[:, :, None])[:, :, 0], counts)
            z = (weights[:, None, :] @ X)[:, 0]
            hidden += z @ self.A[h]
            if self.lin is not None:
                y += z @ self.lin[h]
        return np.asarray(y + np.maximum(hidden if self.b is None else hidden + self.b, 0) @ self.w_o)

    @classmethod
    def random(
        cls,
        dim: int,
        heads: int,
        width: int,
        *,
        rank: int | None = None,
        norm: float = 1.0,
        bias: bool = False,
        seed: int = 0,
    ) -> Self:
        """Gaussian W_h of spectral norm `norm` (and rank), Gaussian network of `width` neurons."""
        rng = seeded(seed, dim=dim, heads=heads, width=width)
        W = np.array([random_matrix(dim, rank, norm, rng) for _ in range(heads)]).reshape(heads, dim, dim)
        A, w_o = rng.standard_normal((heads, dim, width)), rng.standard_normal(width)
        if not bias:
            return cls(W, A, w_o)
        return cls(W, A, w_o, rng.standard_normal(width), float(rng.standard_normal()))
