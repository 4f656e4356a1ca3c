"""Attention whose output goes into an unknown network: X -> sum_i softmax_i(x_i'W x_N) x_i."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, tokens_of


@dataclass(frozen=True, eq=False)
class AttentionBehind(Model):
    """W (d, d). The network that reads the attention output, and what it does with the last token, are not part of the
    model; what was seen of it is its `degree` of homogeneity at infinity, from tokens of norm `length` on."""

    W: Array
    degree: int = 1
    length: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 2))
        if self.W.shape[0] != self.W.shape[1]:
            raise InvalidArgument(f"`W` must be square (got {self.W.shape}).")

    @property
    def dim(self) -> int:
        return len(self.W)

    @property
    def outputs(self) -> int:
        """Width of the attention output."""
        return self.dim

    def key_directions(self, q: Array) -> Array:
        return (q @ self.W.T)[None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, d): what the network behind attention receives, a residual aside."""
        X = tokens_of(tokens, self.dim, self.W.dtype)
        scores = (X @ self.key_directions(X[:, -1])[0][:, :, None])[:, :, 0]
        return np.asarray((attention_weights(scores, counts)[:, None, :] @ X)[:, 0])
