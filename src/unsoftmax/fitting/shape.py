"""Which numbers a model of heads has: their counts, ranks and what is shared, as one vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True)
class Shape:
    """H heads of dimension d with m outputs; rank None: W (H, d, d), else factors W_h = A_h B_h', (H, d, r) each.

    Unknowns in one vector: W raveled, or A then B, and then P (H, m, d).
    """

    heads: int
    dim: int
    outputs: int = 1
    rank: int | None = None

    @property
    def scores(self) -> int:
        """Unknowns of the scores."""
        H, d, r = self.heads, self.dim, self.rank
        return H * d * d if r is None else 2 * H * d * r

    @property
    def unknowns(self) -> int:
        """Length of the vector."""
        return self.scores + self.heads * self.outputs * self.dim

    @property
    def values(self) -> int:
        """Unknowns of the values."""
        return self.unknowns - self.scores

    @property
    def freedom(self) -> int:
        """Independent unknowns: r x r changes of factors leave W alone."""
        return self.unknowns - (0 if self.rank is None else self.heads * self.rank**2)

    def split(self, x: Array) -> tuple[Array, tuple[Array, Array] | None, Array]:
        """W (H, d, d), the factors if there are any, P (H, m, d)."""
        H, d, m, r = self.heads, self.dim, self.outputs, self.rank
        P = x[self.scores :].reshape(H, m, d)
        if r is None:
            return x[: self.scores].reshape(H, d, d), None, P
        A, B = x[: self.scores].reshape(2, H, d, r)
        return A @ B.transpose(0, 2, 1), (A, B), P

    def joined(self, W: Array, P: Array) -> Array:
        """The vector of these heads; factors balance the singular values of W, of which the largest r are kept."""
        if self.rank is None:
            return np.concatenate([W.ravel(), P.ravel()])
        U, s, Vt = np.linalg.svd(W)
        root = np.sqrt(s[:, None, : self.rank])
        A, B = U[:, :, : self.rank] * root, Vt[:, : self.rank].transpose(0, 2, 1) * root
        return np.concatenate([A.ravel(), B.ravel(), P.ravel()])


def embedded(shape: Shape, x: Array, steps: Array) -> Array:
    """Columns of steps (unknowns, k) as changes of W raveled, then P: (H d d + H m d, k)."""
    _, factors, _ = shape.split(x)
    if factors is None:
        return steps
    H, d, r = shape.heads, shape.dim, shape.rank
    A, B = factors
    dA, dB = steps[: shape.scores].reshape(2, H, d, r or 0, -1)
    W = np.einsum("hirk,hjr->hijk", dA, B) + np.einsum("hir,hjrk->hijk", A, dB)
    return np.concatenate([W.reshape(H * d * d, -1), steps[shape.scores :]])
