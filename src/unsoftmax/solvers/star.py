"""W, c and P of all heads from their logits and residues at a star of displacements delta_i around one.

At delta_i every head has r = P delta_i and t(q) = delta_i'(W q + c), affine on the slice of q that was asked. Rows
delta_i'W that are known in full for a few i, and on a few directions S for all, give a W of small rank: W = C U^+ R.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.probes.slices import Slice
from unsoftmax.solvers.singular import svd

RANK = 1e-3
"""Relative singular value below which a direction of W or P is taken for none: noise leaves 1e-5, and a weaker
direction that is really there shows in the misfit of the cut model."""


_NOISY = 0.1
"""Relative singular value below which a direction may be noise where answers are float32: 0.01 to 0.06 was seen."""

_QUIET = 0.03
"""The same, above which not all directions are noise."""


@dataclass(frozen=True, eq=False)
class Ray:
    """One displacement: its slice, logits theta (n, p) in the slice's features, residues R (d, n), and `opposite` (n,),
    the constant term of the logits at -delta."""

    slice: Slice
    theta: Array
    R: Array
    opposite: Array

    @property
    def own(self) -> Array:
        """delta'W base by head (n,)."""
        return np.asarray((self.theta[:, 0] + self.opposite) / 2)

    @property
    def offset(self) -> Array:
        """delta'c by head (n,)."""
        return np.asarray((self.theta[:, 0] - self.opposite) / 2)

    @cached_property
    def full(self) -> Array:
        """delta'W (n, D), where the slice holds all directions across delta."""
        return self.row(np.eye(len(self.slice.delta)))

    def row(self, v: Array) -> Array:
        """delta'W v (n, k) for columns v (D, k) in the span of the slice's E and base."""
        base = self.slice.base
        along = base @ v / (base @ base)
        return np.asarray(self.theta[:, 1:] / self.slice.rho @ (self.slice.E.T @ v) + self.own[:, None] * along)


def row_rank(rays: list[Ray]) -> int:
    """Largest rank over heads of the rows delta_i'W, all known in full."""
    triangle = np.linalg.qr(np.array([ray.slice.delta for ray in rays]).T)[1]
    rows = np.stack([ray.full for ray in rays], axis=1)
    return ranks(np.linalg.solve(triangle.T, rows))


def assemble(full: list[Ray], part: list[Ray], S: Array, rank: int) -> tuple[Array, Array, Array]:
    """W (n, D, D), c (n, D), P (n, d, D) from `full` rays and `part` rays whose slices hold the directions S (D, k)."""
    rays = full + part
    inverse = np.linalg.inv(np.array([ray.slice.delta for ray in rays]))
    P = np.einsum("hdj,ij->hdi", np.stack([ray.R.T for ray in rays], axis=2), inverse)
    c = np.stack([ray.offset for ray in rays], axis=1) @ inverse.T
    rows = np.stack([ray.full for ray in full], axis=1)
    if not part:
        return inverse @ rows, c, P
    columns = inverse @ np.stack([ray.row(S) for ray in rays], axis=1)
    # Rows are nearly parallel: across each other they are as well known as the columns.
    triangle = np.linalg.qr(np.array([ray.slice.delta for ray in full]).T)[1]
    rows = np.linalg.solve(triangle.T, rows)
    U, sizes, Vt = svd(rows @ S, full_matrices=False)
    inner = np.where(np.arange(sizes.shape[1]) < rank, 1 / np.maximum(sizes, 1e-300), 0.0)
    W = columns @ (Vt.transpose(0, 2, 1) * inner[:, None]) @ U.transpose(0, 2, 1) @ rows
    return W, c, P


def gap_rank(matrices: Array) -> int:
    """The rank of a stack of noisy matrices of one rank: where the spectrum, in the median over all of them, falls by
    the largest factor, from what cannot all be noise to what may be; the full one if nothing may."""
    sizes = np.linalg.svd(matrices, compute_uv=False)
    typical = np.median(sizes / np.maximum(sizes[:, :1], 1e-300), axis=0)
    falls = np.where((typical[1:] < _NOISY) & (typical[:-1] > _QUIET), typical[:-1] / (typical[1:] + 1e-300), 0.0)
    return int(np.argmax(falls)) + 1 if falls.any() else len(typical)


def ranks(matrices: Array, shown: float = RANK) -> int:
    """Largest rank over a stack of matrices; what is not `shown`, a relative singular value, is none."""
    sizes = np.linalg.svd(matrices, compute_uv=False)
    return int((sizes > shown * sizes[:, :1]).sum(axis=1).max())
