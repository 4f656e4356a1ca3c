"""Tokens that write nothing, found before anything else is known.

Where the context is a copy of the query token and that copy moves by e, heads add sum_h alpha_h P_h e, exactly and for
every e: scores move too, but all other tokens write the same. So e is written by no head if and only if the
answer stays: a linear picture at small e tells the space roughly, Newton's method at large ones exactly.

Theory: docs/theory/attention-layer.md, "Behind a network", quiet tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.block.infinity import Infinity
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Rough:
    """D (d, d) = sum_h alpha_h P_h at the query token q (d,), roughly; 0 along q."""

    q: Array
    D: Array


@dataclass(frozen=True, eq=False)
class Quiet:
    """written (r, d), empty (d - r, d): orthonormal, roughly what heads write and what they do not; two rough maps.

    `far` asks, and all draws come from `rng`.
    """

    far: Infinity
    rng: np.random.Generator
    written: Array
    empty: Array
    rough: tuple[Rough, Rough]

    def tokens(self, n: int) -> Asking[Array]:
        """n tokens (n, d) on the sphere that no head writes, to rounding; r + 12 queries each or so.

        A chord x - q between a token and the query token is moved until it is not written.
        """
        far, r, W = self.far, len(self.written), self.written
        ends = far.radius * self.unwritten(n + 1)
        q, x = ends[0], ends[1:]
        last = np.broadcast_to(q, (n * r, far.dim))
        moved = far.on_sphere(x[:, None] + BLOCK.difference_step * far.radius * W)
        y0 = yield from far.added(far.frozen(x)[:, None], last[:n], "values", level="rough")
        y1 = yield from far.added(far.frozen(moved).reshape(n * r, 1, -1), last, "values", level="rough")
        J = (y1.reshape(n, r, -1) - y0[:, None]) / (BLOCK.difference_step * far.radius)
        for _ in range(BLOCK.newton_steps):
            y = yield from far.added(far.frozen(x)[:, None], last[:n], "values")
            step = np.stack([np.linalg.lstsq(J[k].T, -y[k], rcond=None)[0] for k in range(n)])
            (x,) = yield from settle("quiet tokens", far.on_sphere(x + step @ W))
        return far.on_sphere(x - q)

    def unwritten(self, n: int) -> Array:
        """n orthonormal directions (n, d) that are roughly not written."""
        return np.asarray(np.linalg.qr(self.rng.standard_normal((len(self.empty), n)))[0].T @ self.empty)


def find_quiet(far: Infinity, rng: np.random.Generator) -> Asking[Quiet]:
    """2 d rough queries: maps at two query tokens at right angles, since neither shows its own direction."""
    d = far.dim
    ends = far.radius * orthonormal(rng, d, 2)
    maps = []
    for q in ends:
        maps.append((yield from _map(far, q)))
    parts, ranks = [], []
    for rough in maps:
        s, Vt = np.linalg.svd(rough.D)[1:]
        ranks.append(int((s > BLOCK.written * s[0]).sum()))
        rest = Vt[ranks[-1] :]
        off = rest - np.outer(rest @ rough.q, rough.q) / (rough.q @ rough.q)
        parts.append(np.linalg.svd(off)[2][: len(rest) - 1])
    r = max(ranks)
    if r == 0:
        raise ModelMismatch(
            "beside endless last tokens nothing shows of what heads write: what stands behind attention does not drop "
            "out there as a network of a block does (it grows faster than its token), or no head writes anything."
        )
    if d - r <= BLOCK.quiet_tokens:
        raise NotIdentifiable(
            f"heads write {r} of {d} dimensions of tokens: behind a network they are told apart by tokens that write "
            f"nothing, which takes {BLOCK.quiet_tokens + 1} dimensions at least. Heads that share values leave them."
        )
    Vt = np.linalg.svd(np.vstack(parts))[2]
    written, empty = yield from settle("tokens that write", Vt[d - r :], Vt[: d - r])
    return Quiet(far, rng, written, empty, (maps[0], maps[1]))


def _map(far: Infinity, q: Array) -> Asking[Rough]:
    tangent = np.linalg.svd(q[None])[2][1:]
    x = far.on_sphere(q + BLOCK.difference_step * far.radius * tangent)
    y = yield from far.added(far.frozen(x)[:, None], np.broadcast_to(q, x.shape), "values", level="rough")
    return Rough(q, (y / (BLOCK.difference_step * far.radius)).T @ tangent)
