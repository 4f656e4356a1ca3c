"""Two-layer ReLU network on the query token: g(x) = w_o . ReLU(A'x + b) + lin . x + b_o."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, floating, seeded, tokens_of


@dataclass(frozen=True, eq=False)
class ReluNetwork(Model):
    """A (d, m), w_o (m,); optional hidden biases b (m,), output bias b_o, and linear part lin (d,).

    The paper's class is A and w_o alone. As a model of sequences it answers from the last token only.
    """

    A: Array
    w_o: Array
    b: Array | None = None
    b_o: float = 0.0
    lin: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "A", floating(self.A, "A", 2))
        object.__setattr__(self, "w_o", floating(self.w_o, "w_o", 1))
        if self.A.shape[1] != self.width:
            raise InvalidArgument(f"`A` must have shape (d, {self.width}) to go with w_o (got {self.A.shape}).")
        for name, size in (("b", self.width), ("lin", self.dim)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, floating(value, name, 1))
                if len(value) != size:
                    raise InvalidArgument(f"`{name}` must have shape ({size},) (got {np.shape(value)}).")

    @property
    def dim(self) -> int:
        return self.A.shape[0]

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return len(self.w_o)

    def of(self, x: Array) -> Array:
        """The network on vectors: x (..., d) -> (...)."""
        hidden = x @ self.A
        if self.b is not None:
            hidden = hidden + self.b
        y = np.maximum(hidden, 0) @ self.w_o + self.b_o
        return np.asarray(y if self.lin is None else y + x @ self.lin)

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch,), the network on the last token."""
        return self.of(tokens_of(tokens, self.dim, self.A.dtype)[:, -1])

    def canonical(self, tolerance: float = 1e-12) -> CanonicalNetwork:
        """What no query can tell apart, removed: order, scaling, orientation, neurons sharing a kink, dead neurons.

        g(x) = linear . (x, 1) + sum_k weights_k |kinks_k . (x, 1)| with unit kinks whose first entry of size is
        positive. Neurons whose kinks agree within `tolerance` are added; what cancels to it is dropped.
        """
        b = np.zeros(self.width) if self.b is None else self.b
        rows = np.column_stack([self.A.T, b]).astype(np.float64)
        linear = np.append(np.zeros(self.dim) if self.lin is None else self.lin, self.b_o)
        moving = np.linalg.norm(self.A, axis=0) > 0
        linear[-1] += float(np.maximum(rows[~moving, -1], 0) @ self.w_o[~moving])
        rows, w = rows[moving], self.w_o[moving].astype(np.float64)
        linear = linear + 0.5 * (w @ rows)
        size = np.linalg.norm(rows, axis=1)
        kinks = rows / size[:, None]
        leading = np.abs(kinks) > 0.5 / np.sqrt(self.dim + 1)
        kinks = kinks * np.sign(kinks[np.arange(len(kinks)), leading.argmax(axis=1)])[:, None]
        return _merged(kinks, 0.5 * w * size, linear, tolerance)

    @classmethod
    def random(cls, dim: int, width: int, *, bias: bool = False, seed: int = 0) -> Self:
        """Gaussian A, w_o (and biases)."""
        rng = seeded(seed, dim=dim, width=width)
        A, w_o = rng.standard_normal((dim, width)), rng.standard_normal(width)
        if not bias:
            return cls(A, w_o)
        return cls(A, w_o, rng.standard_normal(width), float(rng.standard_normal()))


@dataclass(frozen=True, eq=False)
class CanonicalNetwork:
    """linear (d + 1,), unit kinks (m, d + 1), weights (m,): two networks are the same function iff these agree."""

    linear: Array
    kinks: Array
    weights: Array

    @property
    def neurons(self) -> Array:
        """Kinks times weights (m, d + 1): as rows to compare, up to sign."""
        return self.kinks * self.weights[:, None]


def _merged(kinks: Array, weights: Array, linear: Array, tolerance: float) -> CanonicalNetwork:
    """Add the weights of equal kinks. Equal ones are neighbours along a random direction, so no m x m table is made."""
    if not len(kinks):
        return CanonicalNetwork(linear, kinks, weights)
    probe = np.random.default_rng(0).standard_normal(kinks.shape[1])
    order = np.argsort(kinks @ probe, kind="stable")
    kinks, weights = kinks[order], weights[order]
    same = np.linalg.norm(np.diff(kinks, axis=0), axis=1) <= tolerance
    group = np.concatenate([[0], np.cumsum(~same)])
    total, members = np.bincount(group, weights), np.bincount(group, np.abs(weights))
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    kept = np.abs(total) > tolerance * members
    return CanonicalNetwork(linear, kinks[first][kept], total[kept])
