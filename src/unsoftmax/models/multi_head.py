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
    seeded,
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

    def canonical(self, tolerance: float = 1e-12) -> Self:
        """The one representative of this function: heads of equal W (and c) merged, v = 0 dropped, ordered.

        Two models give the same answers on all sequences iff their canonical forms agree (docs/theory/multi-head.md).
        W are equal within `tolerance` times the larger norm; a merged v is 0 if it is below `tolerance` times the sum
        of its members' norms. Order: descending norm of W, then of v, then by
        entries. No head at all is left if f is constant.
        """
        groups = equal_heads(self, tolerance)
        keep = []
        for group in groups:
            total = self.v[group].sum(axis=0)
            size = np.linalg.norm(self.v[group], axis=1).sum()
            if np.linalg.norm(total) > tolerance * size:
                keep.append((group[0], total))

        def order(item: tuple[int, Array]) -> tuple[float, ...]:
            W, v = self.W[item[0]], item[1]
            return (-_norm(W), -_norm(v), *W.ravel(), *v)

        keep.sort(key=order)
        index = [first for first, _ in keep]
        v = np.array([total for _, total in keep], dtype=self.v.dtype).reshape(len(keep), self.dim)
        c = None if self.c is None else self.c[index]
        return type(self)(self.W[index], v, c, self.constant)

    @classmethod
    def random(
        cls,
        dim: int,
        heads: int,
        *,
        rank: int | None = None,
        norm: float = 1.0,
        sparsity: float = 0.0,
        margin: float = 0.0,
        seed: int = 0,
    ) -> Self:
        """`heads` independent Gaussian heads, each as `SingleHead.random` draws it."""
        rng = seeded(seed, dim=dim, heads=heads)
        pairs = [(random_matrix(dim, rank, norm, rng), random_vector(dim, sparsity, margin, rng)) for _ in range(heads)]
        W = np.array([W for W, _ in pairs]).reshape(heads, dim, dim)
        return cls(W, np.array([v for _, v in pairs]).reshape(heads, dim))


def equal_heads(model: MultiHead, tolerance: float) -> list[list[int]]:
    """Indices of the heads grouped by equal scores: same W and same c, relative to the larger norm."""
    offsets = np.zeros_like(model.v) if model.c is None else model.c
    groups: list[list[int]] = []
    for h in range(model.heads):
        for group in groups:
            g = group[0]
            if same(model.W[h], model.W[g], tolerance) and same(offsets[h], offsets[g], tolerance):
                group.append(h)
                break
        else:
            groups.append([h])
    return groups


def same(a: Array, b: Array, tolerance: float) -> bool:
    """Whether arrays of one shape agree within `tolerance` times the larger norm."""
    return _norm(a - b) <= tolerance * max(_norm(a), _norm(b))


def _norm(a: Array) -> float:
    """Frobenius norm, also where squares of entries leave the number format."""
    largest = float(np.abs(a).max(initial=0.0))
    return largest * float(np.linalg.norm(a / largest)) if largest else 0.0
