"""Oracles that know the truth and use their tolerance to hurt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

import unsoftmax as us


def gaussian_head(dim: int, norm: float, seed: int, zeros: int = 0) -> us.models.SingleHead:
    """Gaussian W with ||W||_F = norm, v uniform on the unit sphere (first `zeros` entries 0)."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((dim, dim))
    v = rng.standard_normal(dim)
    v[:zeros] = 0
    return us.models.SingleHead(W * (norm / np.linalg.norm(W)), v / np.linalg.norm(v))


@dataclass(frozen=True)
class Hostile:
    """Adds +-tolerance, the sign by a strategy that looks at the true head and the query.

    "inflate" makes scores look larger, "deflate" smaller, "up" shifts everything one way, "misalign" pushes v towards
    its own direction on one-row queries and pairs the other way.
    """

    head: us.models.SingleHead
    tolerance: float
    strategy: str = "inflate"
    max_norm: float | None = None
    spec: us.oracles.OracleSpec = field(init=False)

    def __post_init__(self) -> None:
        spec = replace(us.oracle(self.head, max_norm=self.max_norm).spec, kind="approximate", tolerance=self.tolerance)
        object.__setattr__(self, "spec", spec)

    def __call__(self, probes):
        y = self.head(probes.tokens, probes.counts)
        return y + self.tolerance * self.sign(probes, y)

    def sign(self, probes, y):
        X = probes.tokens
        if self.strategy == "up":
            return np.ones(len(y))
        one = np.sign(y) if self.strategy in ("inflate", "misalign") else -np.sign(y)
        if X.shape[1] == 1:
            return one
        gap = np.einsum("bd,de,be->b", X[:, 0] - X[:, -1], self.head.W, X[:, -1])
        across = np.sign(gap * ((X[:, 0] - X[:, -1]) @ self.head.v))
        return across if self.strategy == "inflate" else -across


STRATEGIES = ("inflate", "deflate", "up", "misalign")
