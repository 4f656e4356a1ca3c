"""Single softmax head: f(X) = constant + sum_i softmax_i(x_i . (W x_N + c)) (x_i . v)."""

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
    seeded,
    tokens_of,
)


@dataclass(frozen=True, eq=False)
class SingleHead(Model):
    """W (d, d), v (d,); optional key offset c (d,) and output constant (the paper's class has neither)."""

    W: Array
    v: Array
    c: Array | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "W", floating(self.W, "W", 2))
        object.__setattr__(self, "v", floating(self.v, "v", 1))
        if self.W.shape != (self.dim, self.dim):
            raise InvalidArgument(f"`W` must have shape ({self.dim}, {self.dim}) to go with v (got {self.W.shape}).")
        _check_offset(self)

    @property
    def dim(self) -> int:
        return len(self.v)

    def key_directions(self, q: Array) -> Array:
        u = q @ self.W.T
        return (u if self.c is None else u + self.c)[None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        return attend(self, tokens_of(tokens, self.dim, self.v.dtype), counts)

    @classmethod
    def random(
        cls,
        dim: int,
        *,
        rank: int | None = None,
        norm: float = 1.0,
        sparsity: float = 0.0,
        margin: float = 0.0,
        seed: int = 0,
    ) -> Self:
        """Gaussian W of spectral norm `norm` (and rank); unit v with a fraction `sparsity` of zeros, no other entry
        smaller than `margin`."""
        rng = seeded(seed, dim=dim)
        return cls(random_matrix(dim, rank, norm, rng), random_vector(dim, sparsity, margin, rng))


@dataclass(frozen=True, eq=False)
class LowRankHead(Model):
    """A single head whose W = K Q' is kept, and evaluated, as factors K, Q (d, r)."""

    K: Array
    Q: Array
    v: Array
    c: Array | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        for name, ndim in (("K", 2), ("Q", 2), ("v", 1)):
            object.__setattr__(self, name, floating(getattr(self, name), name, ndim))
        if self.K.shape != self.Q.shape or len(self.K) != self.dim:
            raise InvalidArgument(
                f"`K` and `Q` must both have shape ({self.dim}, r) (got {self.K.shape} and {self.Q.shape})."
            )
        _check_offset(self)

    @property
    def dim(self) -> int:
        return len(self.v)

    @property
    def rank(self) -> int:
        """Number of columns r of the factors."""
        return self.K.shape[1]

    @property
    def W(self) -> Array:
        """Dense view (d, d), formed on request."""
        return self.K @ self.Q.T

    def key_directions(self, q: Array) -> Array:
        u = (q @ self.Q) @ self.K.T
        return (u if self.c is None else u + self.c)[None]

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,)."""
        return attend(self, tokens_of(tokens, self.dim, self.v.dtype), counts)

    @classmethod
    def random(
        cls, dim: int, rank: int, *, norm: float = 1.0, sparsity: float = 0.0, margin: float = 0.0, seed: int = 0
    ) -> Self:
        """Gaussian factors scaled so that W has spectral norm `norm`; never forms W."""
        rng = seeded(seed, dim=dim, rank=rank)
        if rank > dim:
            raise InvalidArgument(f"`rank` must be between 0 and dim (got {rank} for dim {dim}).")
        K, Q = rng.standard_normal((dim, rank)), rng.standard_normal((dim, rank))
        size = np.linalg.norm(np.linalg.qr(K)[1] @ np.linalg.qr(Q)[1].T, 2) if rank else 1.0
        return cls(K * (norm / size), Q, random_vector(dim, sparsity, margin, rng))


def attend(head: SingleHead | LowRankHead, X: Array, counts: Array | None) -> Array:
    """Last-position answer of one head: X (batch, N, d) -> (batch,)."""
    u = head.key_directions(X[:, -1])[0]
    scores = (X @ u[:, :, None])[:, :, 0]
    weights = attention_weights(scores, counts)
    return np.asarray((weights * (X @ head.v)).sum(axis=1) + head.constant)


def _check_offset(head: SingleHead | LowRankHead) -> None:
    if head.c is not None:
        object.__setattr__(head, "c", floating(head.c, "c", 1))
        if len(head.c) != head.dim:
            raise InvalidArgument(f"`c` must have shape ({head.dim},) like v (got {head.c.shape}).")
