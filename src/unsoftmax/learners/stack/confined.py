"""Heads behind a final norm, whose answers are directions: what is written along the last token q is lost.

While q moves in a subspace S of a few dimensions, answers are read off S, where nothing is lost. Each S shows W_h on S,
c_h, and P_h off S; a few S show all, and heads are matched by what two of them both see of P_h.

Theory: docs/theory/stacks.md, "Behind a final norm".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.stack.apart import Apart, tell_apart
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.star import Star, read_opposite, read_rays
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.slices import Slice, slice_within
from unsoftmax.probes.sphere import sphere


@dataclass(eq=False)
class Confined(Far):
    """The same questions with q in S (D, p), and answers in coordinates off it, C (D, D - p)."""

    S: Array = field(default_factory=lambda: np.empty((0, 0)))
    C: Array = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def outputs(self) -> int:
        return self.C.shape[1]

    def displacement(self, size: float) -> Array:
        return np.asarray(size * self.frame.radius * self.S @ sphere(self.rng, (self.S.shape[1],)))

    def cut(self, delta: Array, directions: Array | None = None) -> Slice:
        return slice_within(delta, self.frame.radius, self.S)

    def pairs(self, q: Array, delta: Array, copies: Array, phase: str = "main") -> Asking[Array]:
        y = yield from super().pairs(q, delta, copies, phase)
        return y @ self.C


@dataclass(frozen=True, eq=False)
class Part:
    """What one S shows: WS (n, D, p), c (n, D), CP (n, D - p, D)."""

    S: Array
    C: Array
    WS: Array
    c: Array
    CP: Array


def read_confined(far: Far, again: int, phase: str) -> Asking[Star]:
    """All heads, from as many S as cover all directions."""
    D = far.frame.D
    p = max(STACK.narrowest_space, min(STACK.widest_space, D // 3))
    basis = orthonormal(far.rng, D, D).T
    parts: list[Part] = []
    for start in range(0, D, p):
        own = np.arange(start, start + p) % D
        S, C = basis[:, own], np.delete(basis, own, axis=1)
        view = Confined(far.frame, far.lengths, far.rng, None, far.data, far.places, S, C)
        apart = yield from tell_apart(view, again)
        parts.append((yield from _part(view, apart, phase)))
    found = sorted({len(part.c) for part in parts})
    if len(found) > 1:
        raise ModelMismatch(f"behind the final norm {found} heads were told apart, by where the last token was.")
    return _joined(parts)


def _part(view: Confined, apart: Apart, phase: str) -> Asking[Part]:
    delta = apart.slice.delta
    D = len(delta)
    directions = list(np.linalg.qr(np.column_stack([delta, np.eye(D)]))[0][:, 1:D].T)
    centre = yield from read_opposite(view, apart.slice, apart.fit, phase)
    rays = [centre, *(yield from read_rays(view, apart, directions, None, view.near, phase))]
    inverse = np.linalg.inv(np.array([ray.slice.delta for ray in rays]))
    CP = np.einsum("hdj,ij->hdi", np.stack([ray.R.T for ray in rays], axis=2), inverse)
    c = np.stack([ray.offset for ray in rays], axis=1) @ inverse.T
    WS = inverse @ np.stack([ray.row(view.S) for ray in rays], axis=1)
    return Part(view.S, view.C, WS, c, CP)


def _joined(parts: list[Part]) -> Star:
    """Heads of all parts in the order of the first, W, c and P by least squares."""
    first, WS, c, CP = parts[0], [], [], []
    for part in parts:
        U, same, Vt = np.linalg.svd(first.C.T @ part.C)
        k = int((same > 0.5).sum())
        mine = np.einsum("dk,hde->hke", U[:, :k], first.CP)
        other = np.einsum("kd,hde->hke", Vt[:k], part.CP)
        order = linear_sum_assignment(np.linalg.norm(mine[:, None] - other[None], axis=(2, 3)))[1]
        WS.append(part.WS[order])
        c.append(part.c[order])
        CP.append(part.CP[order])
    W = np.concatenate(WS, axis=2) @ np.linalg.pinv(np.hstack([part.S for part in parts]))
    P = np.linalg.pinv(np.vstack([part.C.T for part in parts])) @ np.concatenate(CP, axis=1)
    return Star(W, np.mean(c, axis=0), P)
