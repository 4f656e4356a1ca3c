"""The same heads at displacements turned a little: P from the residues, W and c from the logits.

Rows delta_i'W are read in full until they show the rank of W; from then on a few directions of q are enough.

A second reading of heads that are known well: displacements in all directions, instead of turns around one.

Rows of W from displacements that are nearly parallel have lost a digit or two where these are taken apart. Heads that
are known foretell their logits at any displacement, so that D orthogonal ones can be read, each on its own.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", star.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.stack.apart import SIZES, Apart
from unsoftmax.learners.stack.far import Far
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.slices import Slice, turned
from unsoftmax.solvers.logit_fit import LogitFit
from unsoftmax.solvers.stack_heads import Heads
from unsoftmax.solvers.star import Ray, assemble, row_rank

_ANGLES = (0.1, 0.03, 0.01)
"""Turns of delta: the first keeps most digits, a step that got stuck is repeated nearer to what is known."""

COPIES = np.array([[8, 2], [4, 2], [2, 2], [2, 4], [2, 8], [1, 8]])
"""Copies of q + delta and of q, drawn at random: one k per q is enough where the start is near."""

_OPPOSITE = np.array([[4, 2], [2, 4]])
"""Copies at -delta: k = 1/2 and 2."""

_SPARE = 6
"""Answers of a ray beyond p + n: with fewer, other logits fit as well."""

_BESIDE = 2
"""Rows, and directions, beyond the rank: one shows that nothing is left, one keeps the condition."""

_READABLE = 1e-6
"""Weights at -delta are kept this far from 0 and 1."""

_OVER = 1.3
"""Answers of a displacement over p + n: they are all that is read, and the condition gains from a few more."""

_OPPOSITE_AGAIN = 4
"""Pairs of answers at every -delta: two were enough for a start."""


@dataclass(frozen=True, eq=False)
class Star:
    """W (n, D, D), c (n, D), P (n, d, D) as read, and the worst misfit of a ray, absolute."""

    W: Array
    c: Array
    P: Array
    rank: int
    misfit: float


def read_star(
    far: Far, apart: Apart, rng: np.random.Generator, enough: float, *, full: bool = False, phase: str = "main"
) -> Asking[Star]:
    """All D displacements, rays that miss by more than `enough` again; with `full` every row in full."""
    first = apart.slice
    centre = yield from read_opposite(far, first, apart.fit, rng, phase)
    rays, rank, worst = [centre], far.frame.D, apart.misfit
    directions = list(first.E.T)
    while directions and (full or rank > len(rays) - _BESIDE):
        # As many at once as the least rank that could be seen now asks for.
        count = min(len(directions), 1 if len(rays) > 1 else 1 + _BESIDE)
        new, misfit = yield from read_rays(
            far, apart, [directions.pop(0) for _ in range(count)], None, enough, rng, phase
        )
        rays, worst = rays + new, max(worst, misfit)
        rank = row_rank(rays)
    S = orthonormal(rng, far.frame.D, min(rank + _BESIDE, far.frame.D - 1)).T
    part: list[Ray] = []
    if directions:
        part, misfit = yield from read_rays(far, apart, directions, S, enough, rng, phase)
        worst = max(worst, misfit)
    return Star(*assemble(rays, part, S, rank), rank, worst)


def read_rays(
    far: Far,
    apart: Apart,
    towards: list[Array],
    S: Array | None,
    enough: float,
    rng: np.random.Generator,
    phase: str,
) -> Asking[tuple[list[Ray], float]]:
    """Rays of displacements turned towards unit vectors, all in one round; those that got stuck again, nearer."""
    done: dict[int, tuple[Slice, LogitFit]] = {}
    open_ = list(range(len(towards)))
    size = float(np.linalg.norm(apart.fit.R) / np.sqrt(apart.fit.R.size))
    for number, angle in enumerate(_ANGLES):
        cuts = [far.cut(turned(apart.slice.delta, towards[i], angle), S) for i in open_]
        fits = yield from _fits(far, apart, cuts, rng, phase if number == 0 else "repair")
        for i, cut, fit in zip(open_, cuts, fits, strict=True):
            if i not in done or fit.residual < done[i][1].residual:
                done[i] = (cut, fit)
        open_ = [i for i in open_ if done[i][1].residual * size > max(10 * apart.misfit, enough)]
        if not open_:
            break
    rays = []
    for i in range(len(towards)):
        rays.append((yield from read_opposite(far, *done[i], rng, phase)))
    return rays, max(fit.residual for _, fit in done.values()) * size


def _fits(far: Far, apart: Apart, cuts: list[Slice], rng: np.random.Generator, phase: str) -> Asking[list[LogitFit]]:
    """Heads on neighbouring slices, started from the logits of the first one."""
    first, theta = apart.slice, apart.fit.theta
    m = cuts[0].features + apart.heads + _SPARE
    drawn = [cut.draw(m, rng) for cut in cuts]
    copies = COPIES[rng.integers(0, len(COPIES), len(cuts) * m)]
    q = np.concatenate([part for _, part in drawn])
    delta = np.repeat([cut.delta for cut in cuts], m, axis=0)
    y = yield from far.pairs(q, delta, copies, phase)
    log_k = np.log(copies[:, 1] / copies[:, 0])
    fits = []
    for i, (F, own) in enumerate(drawn):
        rows = slice(i * m, (i + 1) * m)
        t = theta[:, :1] + theta[:, 1:] @ (first.E.T @ own.T) / first.rho
        start = np.linalg.lstsq(F, t.T, rcond=None)[0].T
        fit = far.fit(start, F, log_k[rows], y[rows])
        fits.append(same_order(fit, apart.fit.R))
    return fits


def same_order(fit: LogitFit, R: Array) -> LogitFit:
    """A fit may return heads permuted with the same misfit: residues (d, n), which moved little, tell."""
    cost = np.linalg.norm(R[:, :, None] - fit.R[:, None, :], axis=0)
    order = linear_sum_assignment(cost)[1]
    return LogitFit(fit.theta[order], fit.R[:, order], fit.residual)


def read_opposite(
    far: Far, cut: Slice, fit: LogitFit, rng: np.random.Generator, phase: str, pairs: int = 1
) -> Asking[Ray]:
    """The constant term of the logits at -delta, where residues are known: two queries, or more pairs of them."""
    copies = np.tile(_OPPOSITE, (pairs, 1))
    F, q = cut.opposite().draw(len(copies), rng)
    y = yield from far.pairs(q, -cut.delta, copies, phase)
    alpha = np.clip(np.linalg.lstsq(-fit.R, y.T, rcond=None)[0], _READABLE, 1 - _READABLE)
    t = np.log(alpha / (1 - alpha)) + np.log(copies[:, 1] / copies[:, 0])
    trust = (alpha * (1 - alpha)) ** 2
    if far.networks:
        # Of two answers one may lie at a kink of a network.
        off = np.linalg.norm(y.T + fit.R @ alpha, axis=0) / np.sqrt(len(fit.R))
        trust = trust / (1 + (off / far.clear) ** 2)
    constant = (trust * (t + fit.theta[:, 1:] @ F[:, 1:].T)).sum(axis=1) / trust.sum(axis=1)
    return Ray(cut, fit.theta, fit.R, constant)


def read_spread(far: Far, heads: Heads, rng: np.random.Generator) -> Asking[Star]:
    """W, c and P of heads that are known to a few digits, read again at D orthogonal displacements."""
    D, n = far.frame.D, len(heads)
    cuts = [far.cut(SIZES[0] * far.frame.radius * direction) for direction in orthonormal(rng, D, D)]
    m = int(np.ceil(_OVER * (cuts[0].features + n)))
    drawn = [cut.draw(m, rng) for cut in cuts]
    copies = COPIES[rng.integers(0, len(COPIES), D * m)]
    delta = np.repeat([cut.delta for cut in cuts], m, axis=0)
    y = yield from far.pairs(np.concatenate([q for _, q in drawn]), delta, copies)
    log_k = np.log(copies[:, 1] / copies[:, 0])
    W, c, P, rays, worst = heads.W, heads.c, heads.P, [], 0.0
    for i, (cut, (F, q)) in enumerate(zip(cuts, drawn, strict=True)):
        rows = slice(i * m, (i + 1) * m)
        t = np.einsum("d,hde,be->bh", cut.delta, W, q, optimize=True) + c @ cut.delta
        fit = far.fit(np.linalg.lstsq(F, t, rcond=None)[0].T, F, log_k[rows], y[rows])
        fit = same_order(fit, (P @ cut.delta).T)
        worst = max(worst, fit.residual * float(np.sqrt(np.mean(y[rows] ** 2))))
        rays.append((yield from read_opposite(far, cut, fit, rng, "main", _OPPOSITE_AGAIN)))
    return Star(*assemble(rays, [], np.empty((D, 0)), D), D, worst)
