"""Several heads whose outputs go into an unknown network: X -> (sum_i softmax_i(x_i'W_h x_N) x_i)_h."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, tokens_of


@dataclass(frozen=True, eq=False)
class HeadsBehind(Model):
    """W (H, d, d). The network that reads the heads is not part of the model; what was seen of it is its `degree` of
    homogeneity at infinity, from tokens of norm `length` on."""

    W: Array
    degree: int = 1
    length: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 3))
        if self.W.shape[1] != self.W.shape[2]:
            raise InvalidArgument(f"`W` must have shape (H, d, d) (got {self.W.shape}).")

    @property
    def dim(self) -> int:
        return self.W.shape[1]

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return len(self.W)

    @property
    def outputs(self) -> int:
        """Width of all heads' outputs together."""
        return self.heads * self.dim

    def key_directions(self, q: Array) -> Array:
        return np.matmul(q[None], self.W.transpose(0, 2, 1))

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, H d): what the network behind the heads receives, a residual aside."""
        X = tokens_of(tokens, self.dim, self.W.dtype)
        parts = []
        for u in self.key_directions(X[:, -1]):
            weights = attention_weights((X @ u[:, :, None])[:, :, 0], counts)
            parts.append((weights[:, None, :] @ X)[:, 0])
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(X), 0), dtype=self.W.dtype)
