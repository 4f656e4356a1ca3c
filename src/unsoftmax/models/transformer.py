"""One-layer Transformer: a softmax head without value projection, then a two-layer ReLU network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, random_matrix, seeded, tokens_of
from unsoftmax.models.relu_network import ReluNetwork


@dataclass(frozen=True, eq=False)
class Transformer(Model):
    """TF(X) = g(sum_i softmax_i(x_i'W x_N) x_i [+ x_N]), g(x) = w_o . ReLU(A'x + b) + lin . x + b_o.

    W (d, d), A (d, m), w_o (m,); optional b (m,), b_o, lin (d,); `residual` adds x_N to the network's input.
    """

    W: Array
    A: Array
    w_o: Array
    b: Array | None = None
    b_o: float = 0.0
    lin: Array | None = None
    residual: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 2))
        for name, value in self.network.parameters().items():
            if value.ndim:
                object.__setattr__(self, name, value)
        if self.W.shape != (self.dim, self.dim):
            raise InvalidArgument(f"`W` must have shape ({self.dim}, {self.dim}) to go with A (got {self.W.shape}).")

    @property
    def dim(self) -> int:
        return int(np.shape(self.A)[0])

    @property
    def network(self) -> ReluNetwork:
        """The feed-forward part."""
        return ReluNetwork(self.A, self.w_o, self.b, self.b_o, self.lin)

    def key_directions(self, q: Array) -> Array:
        return (q @ self.W.T)[None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        X = tokens_of(tokens, self.dim, self.W.dtype)
        scores = (X @ self.key_directions(X[:, -1])[0][:, :, None])[:, :, 0]
        weights = attention_weights(scores, counts)
        z = (weights[:, None, :] @ X)[:, 0]
        return self.network.of(z + X[:, -1] if self.residual else z)

    @classmethod
    def random(
        cls,
        dim: int,
        width: int,
        *,
        rank: int | None = None,
        norm: float = 1.0,
        bias: bool = False,
        residual: bool = False,
        seed: int = 0,
    ) -> Self:
        """Gaussian W of spectral norm `norm` (and rank), Gaussian network of `width` neurons."""
        rng = seeded(seed, dim=dim, width=width)
        W = random_matrix(dim, rank, norm, rng)
        g = ReluNetwork.random(dim, width, bias=bias, seed=int(rng.integers(2**31)))
        return cls(W, g.A, g.w_o, g.b, g.b_o, residual=residual)
