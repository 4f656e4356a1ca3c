"""Labels and low rank: only the r(2d - r) entries of a cross of M = A W B' are bisected.

A coarse square block of entries shows the rank and which rows and columns carry it; then r columns and r rows.

Theory: docs/theory/membership.md, "One bit per bit", low rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.labels.asking import refine_direction
from unsoftmax.learners.labels.consistency import refuse_wrong_labels
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.learners.labels.entries import Entries, Known
from unsoftmax.learners.labels.values import bisected, left_in_all, shift_bounds
from unsoftmax.probes.base import Array, LazyProbes
from unsoftmax.solvers.skeleton import Skeleton, pivots


@dataclass(frozen=True, eq=False)
class Cross:
    """W as far as labels told it: the skeleton, what it is made of, and a bound on ||M - skeleton||_F."""

    skeleton: Skeleton
    known: Known
    error: float


def cross_of_rank(rank: int, accuracy: float, known: Known) -> Asking[Cross]:
    """Entries of a rank known not to exceed `rank`: r(2d - r) times the bits of the accuracy, and the block."""
    k = min(known.labels.spec.dim, max(2 * rank, rank + 4))
    for depth in LABELS.block_depths:
        # Weak pivots chosen blindly would cost every entry bits; a closer look at the block costs less.
        known = yield from _block(known, k, max(depth, accuracy / 4))
        G = _square(known.entries, k)
        if len(pivots(G, rank, 8 * depth * known.entries.size)[0]) == rank:
            break
    i, j = pivots(G, rank, 0.0)
    return (yield from _finish(i, j, accuracy, known, exact=True))


def cross_of_any_rank(accuracy: float, known: Known) -> Asking[Cross]:
    """Find the rank: the block grows until it is larger than its rank, and fresh entries must agree with the cross.

    A coarse look suffices to see that a block is too small. Once it is not, it is read as finely as the accuracy, so
    that directions far below the others are found before anything is asked outside it.
    """
    labels, d = known.labels, known.labels.spec.dim
    k, coarse = min(d, LABELS.first_block), max(LABELS.unknown_rank_depth, accuracy / 4)
    if not labels.flip:
        target = max(known.direction.error / 16, 8 * labels.spec.eps)
        direction = yield from refine_direction(known.direction, target, labels, sparing_rounds(accuracy))
        known = replace(known, direction=direction, family=replace(known.family, v=direction.v))
    while True:
        known = yield from _block(known, k, coarse)
        # A residual collects the errors of the pivots before it.
        i, j = pivots(_square(known.entries, k), k, 8 * coarse * known.entries.size)
        if len(i) < k:
            known, i, j = yield from _weak(known, k, i, j, accuracy)
        if len(i) < k or k == d:
            crossed = yield from _finish(i, j, accuracy, known, exact=False)
            if (yield from _agrees(crossed)) or len(i) == d:
                return crossed
            known = crossed.known
            if k == d:
                raise ModelMismatch(
                    f"entries of W predicted from {len(i)} rows and columns are contradicted by fresh labels however "
                    "finely they are read; the scores of the target are not bilinear in the tokens."
                )
        k = min(d, 2 * k)


def sparing_rounds(accuracy: float) -> int:
    """Levels asked a round where few numbers are searched: finding the rank takes rounds of its own."""
    return 3 if theory.membership_bits(accuracy) > LABELS.bits_for_three_levels else 2


def _weak(known: Known, k: int, i: Array, j: Array, accuracy: float) -> Asking[tuple[Known, Array, Array]]:
    """Pivots of the block read to the accuracy: its cross and a few other entries, then all if these leave it."""
    labels, entries = known.labels, known.entries
    others = [np.setdiff1d(np.arange(k), found) for found in (i, j)]
    n = min(CORE.to_spare, len(others[0]))
    pairs = labels.rng.permutation(others[0])[:n] * k + labels.rng.permutation(others[1])[:n]
    place = entries.rows * k + entries.columns
    inside = _inside(entries, k)
    looked_at = np.isin(entries.rows, i) | np.isin(entries.columns, j) | np.isin(place, pairs)
    for which, cuts in ((inside & looked_at, sparing_rounds(accuracy)), (inside, LABELS.last_levels)):
        wide = _wider(which, accuracy / 4 * entries.size)
        known = yield from known.narrow_until_met(wide, "pilot", 1 if labels.flip else cuts)
        G = _square(known.entries, k)
        tolerance = 2 * accuracy * entries.size + 2 * float(shift_bounds(known)[inside].max())
        rest = G - G[:, j] @ np.linalg.solve(G[np.ix_(i, j)], G[i]) if len(i) else G
        if not (np.abs(rest.ravel()[pairs]) > tolerance).any():
            return known, i, j
    i, j = pivots(G, k, tolerance)
    return known, i, j


def _block(known: Known, k: int, depth: float) -> Asking[Known]:
    """The entries [:k, :k], each within depth times their size."""
    rows, columns = (index.ravel() for index in np.indices((k, k)))
    known = known.holding(rows, columns)
    wide = _wider(_inside(known.entries, k), depth * known.entries.size)
    # Few entries and many bits: several cuts a round spare rounds where they cost little.
    d = known.labels.spec.dim
    return (
        yield from known.narrow_until_met(wide, "pilot", LABELS.last_levels if k * k < d else 3 if k * k < 8 * d else 1)
    )


def _inside(entries: Entries, k: int) -> Array:
    """Which entries lie in the block [:k, :k]."""
    return np.asarray((entries.rows < k) & (entries.columns < k))


def _wider(which: Array, radius: float) -> Callable[[Known], Array]:
    """Those of some entries that are not known to within a radius yet."""
    return lambda known: np.flatnonzero(which & (known.entries.search.radius > radius))


def _square(entries: Entries, k: int) -> Array:
    inside = _inside(entries, k)
    G = np.zeros((k, k))
    G[entries.rows[inside], entries.columns[inside]] = entries.search.center[inside]
    return G


def _finish(i: Array, j: Array, accuracy: float, known: Known, *, exact: bool) -> Asking[Cross]:
    """Bisect the cross of rows i and columns j until M is within accuracy ||M||_F.

    exact: every entry of the cross is asked the closed form's number of bits before any is asked more.
    """
    d = known.labels.spec.dim
    rows, columns = (index.ravel() for index in np.indices((d, d)))
    wanted = np.isin(rows, i) | np.isin(columns, j)
    # The block knows the typical size better than the pilot did.
    size = float(np.sqrt(np.mean(known.entries.search.center**2)))
    known = replace(known, entries=known.entries.resized(size)).holding(rows[wanted], columns[wanted])
    known = yield from known.bracketed()
    inside = np.flatnonzero(np.isin(known.entries.rows, i) | np.isin(known.entries.columns, j))

    def shape(now: Entries) -> tuple[float, Array, Skeleton]:
        skeleton, weights = _skeleton(i, j, now, accuracy, d)
        return accuracy * float(np.linalg.norm(skeleton.matrix)), weights, skeleton

    # A coarse skeleton may look far worse conditioned than it is: the rest of v waits until it is known.
    known = yield from bisected(known, shape, inside if exact else None, accuracy / 1024)
    _, weights, skeleton = shape(known.entries)
    yield from refuse_wrong_labels(known, inside)
    error = float(np.linalg.norm(weights * known.entries.search.radius)) + left_in_all(known, skeleton)
    return Cross(skeleton, known, error)


def _skeleton(i: Array, j: Array, entries: Entries, accuracy: float, d: int) -> tuple[Skeleton, Array]:
    """The cross as it stands, without pivots that are only noise, and the weights of its entries."""
    M = np.zeros((d, d))
    M[entries.rows, entries.columns] = entries.search.center
    radius = np.zeros((d, d))
    radius[entries.rows, entries.columns] = entries.search.radius
    # A pivot is noise only if it is still small at the accuracy asked for: a coarse look must not lower the rank.
    tolerance = 4 * min(float(radius[np.ix_(i, j)].max()), accuracy * entries.size)
    skeleton = Skeleton(i, j, M[:, j], M[i]).reduced(tolerance)
    if skeleton.rank == 0:
        skeleton = Skeleton(i, j, M[:, j], M[i]).reduced(0.0)
    return skeleton, skeleton.amplification(entries.rows, entries.columns)


def _spread(skeleton: Skeleton, entries: Entries) -> Array:
    """Size (d, d) of what brackets leave in the entries that the cross predicts: M = X R = C Y, each by its own."""
    inside = np.isin(entries.rows, skeleton.rows) | np.isin(entries.columns, skeleton.columns)
    radius = float(np.sqrt(np.mean(entries.search.radius[inside] ** 2)))
    X, Y = (skeleton.left**2).sum(axis=1), (skeleton.right**2).sum(axis=0)
    return radius * np.sqrt(np.outer(1 + X, 1 + Y))


def _agrees(crossed: Cross) -> Asking[bool]:
    """Whether fresh entries lie where the cross puts them: two decisions each."""
    labels, family, entries = crossed.known.labels, crossed.known.family, crossed.known.entries
    d = labels.spec.dim
    M = crossed.skeleton.matrix
    asked = entries.rows * d + entries.columns
    fresh = labels.rng.permutation(np.setdiff1d(np.arange(d * d), asked))[: LABELS.checked_entries]
    if len(fresh) == 0:
        return True
    rows, columns = np.tile(fresh // d, 2), np.tile(fresh % d, 2)
    reach = LABELS.entry_off_over_error * _spread(crossed.skeleton, entries)[fresh // d, fresh % d]
    levels = M[rows, columns] + np.concatenate([reach, -reach])

    def ask(index: Array, scale: Array) -> LazyProbes:
        product = entries.product(levels[index], labels.spec) * scale
        return family.above(rows[index], columns[index], levels[index], product, "pilot")

    above = yield from labels.decide(len(levels), ask)
    return bool((above == np.repeat([False, True], len(fresh))).all())
