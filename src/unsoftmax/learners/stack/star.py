"""The same heads at displacements turned a little: P from the residues, W and c from the logits.

Rows delta_i'W are read in full until they show the rank of W; from then on a few directions of q are enough.

A second reading of heads that are known well: displacements in all directions, instead of turns around one.

Rows of W from displacements that are nearly parallel have lost a digit or two where these are taken apart. Heads that
are known foretell their logits at any displacement, so that D orthogonal ones can be read, each on its own.

Behind a final norm answers are directions, and what is written along the last token q is lost. While q moves in a
subspace S of a few dimensions, answers are read off S, where nothing is lost. Each S shows W_h on S, c_h, and P_h off
S; a few S show all, and heads are matched by what two of them both see of P_h.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
Theory: docs/theory/stacks.md, "Behind a final norm".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.apart import Apart, tell_apart
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.slices import Slice, slice_within, turned
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.gauss_newton import LARGEST
from unsoftmax.solvers.logit_fit import LogitFit
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.stack_heads import Heads
from unsoftmax.solvers.star import Ray, assemble, row_rank

COPIES = np.array([[8, 2], [4, 2], [2, 2], [2, 4], [2, 8], [1, 8]])
"""Copies of q + delta and of q, drawn at random: one k per q is enough where the start is near."""

_OPPOSITE = np.array([[4, 2], [2, 4]])
"""Copies at -delta: k = 1/2 and 2."""


@dataclass(frozen=True, eq=False)
class Star:
    """W (n, D, D), c (n, D), P (n, d, D) as read."""

    W: Array
    c: Array
    P: Array


Foretold = Callable[[Slice, Array], tuple[Array, Array]]
"""Logits (m, n) of all heads at query tokens (m, D) of a slice, and their residues (d, n), as known so far."""


def read_star(far: Far, apart: Apart, enough: float, *, full: bool = False, phase: str = "main") -> Asking[Star]:
    """All D displacements, rays that miss by more than `enough` again; with `full` every row in full."""
    first = apart.slice
    rays, rank = [(yield from read_opposite(far, first, apart.fit, phase))], far.frame.D
    directions = list(first.E.T)
    while directions and (full or rank > len(rays) - CORE.checks):
        # As many at once as the least rank that could be seen now asks for.
        count = min(len(directions), 1 if len(rays) > 1 else 1 + CORE.checks)
        rays += yield from read_rays(far, apart, directions[:count], None, enough, phase)
        directions = directions[count:]
        rank = row_rank(rays)
        least = min(rank, len(rays) - CORE.checks)
        if far.whole and apart.heads * least * (2 * far.frame.D + 1 - least) > LARGEST:
            raise ModelMismatch(
                f"{apart.heads} heads of rank {least} and more have more than {LARGEST} parameters, which are not "
                "fitted together, so that constants stay unknown."
            )
    S = orthonormal(far.rng, far.frame.D, min(rank + CORE.checks, far.frame.D - 1)).T
    part = (yield from read_rays(far, apart, directions, S, enough, phase)) if directions else []
    return Star(*assemble(rays, part, S, rank))


def read_rays(
    far: Far, apart: Apart, towards: list[Array], S: Array | None, enough: float, phase: str
) -> Asking[list[Ray]]:
    """Rays of displacements turned towards unit vectors, all in one round; those that got stuck again, nearer."""
    first, theta = apart.slice, apart.fit.theta

    def foretold(_: Slice, q: Array) -> tuple[Array, Array]:
        return (theta[:, :1] + theta[:, 1:] @ (first.E.T @ q.T) / first.rho).T, apart.fit.R

    done: dict[int, tuple[Slice, LogitFit]] = {}
    open_ = list(range(len(towards)))
    size = float(np.linalg.norm(apart.fit.R) / np.sqrt(apart.fit.R.size))
    for number, angle in enumerate(STACK.turns_of_displacement):
        cuts = [far.cut(turned(first.delta, towards[i], angle), S) for i in open_]
        m = cuts[0].features + apart.heads + STACK.ray_answers_to_spare
        fits = yield from read_fits(far, cuts, m, foretold, phase if number == 0 else "repair")
        for i, cut, (fit, _, _) in zip(open_, cuts, fits, strict=True):
            if i not in done or fit.residual < done[i][1].residual:
                done[i] = (cut, fit)
        open_ = [i for i in open_ if done[i][1].residual * size > max(10 * apart.misfit, enough)]
        if not open_:
            break
    rays = []
    for i in range(len(towards)):
        rays.append((yield from read_opposite(far, *done[i], phase)))
    return rays


def read_fits(
    far: Far, cuts: list[Slice], m: int, foretold: Foretold, phase: str
) -> Asking[list[tuple[LogitFit, Array, Array]]]:
    """Heads on slices, from m answers on each and logits that are nearly right; in the order of the residues.

    With every fit the features (m, p) and log_k (m,) that were asked.
    """
    drawn = [cut.draw(m, far.rng) for cut in cuts]
    copies = COPIES[far.rng.integers(0, len(COPIES), len(cuts) * m)]
    delta = np.repeat([cut.delta for cut in cuts], m, axis=0)
    y = yield from far.pairs(np.concatenate([q for _, q in drawn]), delta, copies, phase)
    log_k = np.log(copies[:, 1] / copies[:, 0])
    fits = []
    for i, (cut, (F, q)) in enumerate(zip(cuts, drawn, strict=True)):
        rows = slice(i * m, (i + 1) * m)
        t, R = foretold(cut, q)
        fit = far.fit(np.linalg.lstsq(F, t, rcond=None)[0].T, F, log_k[rows], y[rows])
        # A fit may return heads permuted with the same misfit: residues, which moved little, tell.
        order = linear_sum_assignment(np.linalg.norm(R[:, :, None] - fit.R[:, None, :], axis=0))[1]
        fits.append((LogitFit(fit.theta[order], fit.R[:, order], fit.residual), F, log_k[rows]))
    return fits


def read_opposite(far: Far, cut: Slice, fit: LogitFit, phase: str, pairs: int = 1) -> Asking[Ray]:
    """The constant term of the logits at -delta, where residues are known: two queries, or more pairs of them."""
    copies = np.tile(_OPPOSITE, (pairs, 1))
    F, q = cut.opposite().draw(len(copies), far.rng)
    y = yield from far.pairs(q, -cut.delta, copies, phase)
    alpha = np.clip(np.linalg.lstsq(-fit.R, y.T, rcond=None)[0], STACK.weight_off_ends, 1 - STACK.weight_off_ends)
    t = np.log(alpha / (1 - alpha)) + np.log(copies[:, 1] / copies[:, 0])
    trust = (alpha * (1 - alpha)) ** 2
    if far.networks:
        # Of two answers one may lie at a kink of a network.
        off = np.linalg.norm(y.T + fit.R @ alpha, axis=0) / np.sqrt(len(fit.R))
        trust = trust / (1 + (off / far.clear) ** 2)
    constant = (trust * (t + fit.theta[:, 1:] @ F[:, 1:].T)).sum(axis=1) / trust.sum(axis=1)
    return Ray(cut, fit.theta, fit.R, constant)


def read_spread(far: Far, heads: Heads) -> Asking[Star]:
    """W, c and P of heads that are known to a few digits, read again at D orthogonal displacements."""
    D, W, c, P = far.frame.D, heads.W, heads.c, heads.P

    def foretold(cut: Slice, q: Array) -> tuple[Array, Array]:
        t = np.einsum("d,hde,be->bh", cut.delta, W, q, optimize=True) + c @ cut.delta
        return t, (P @ cut.delta).T

    cuts = [far.cut(STACK.displacements[0] * far.frame.radius * direction) for direction in orthonormal(far.rng, D, D)]
    fits = yield from read_fits(
        far, cuts, int(np.ceil(STACK.answers_over_unknowns * (cuts[0].features + len(heads)))), foretold, "main"
    )
    rays = []
    for cut, (fit, _, _) in zip(cuts, fits, strict=True):
        rays.append((yield from read_opposite(far, cut, fit, "main", STACK.opposite_pairs_again)))
    return Star(*assemble(rays, [], np.empty((D, 0)), D))


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
        view = Confined(far.frame, far.lengths, far.rng, None, far.data, far.places, far.whole, S, C)
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
        U, same, Vt = svd(first.C.T @ part.C)
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
