"""What errors of v and rounding leave in the entries of M = A W B', and how far v must be known for an accuracy.

Theory: docs/theory/membership.md, "One bit per bit", when to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.labels.asking import refine_direction
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.learners.labels.entries import Entries, Known
from unsoftmax.probes.base import Array
from unsoftmax.probes.thresholds import EntryThresholds
from unsoftmax.solvers.skeleton import Skeleton
from unsoftmax.spec import OracleSpec


def left_by_values(known: Known, through: Skeleton | None = None) -> float:
    """Frobenius error of M left by the error of v; M is the entries themselves, or the skeleton they give.

    Entry (l, j) errs by gain (a_l.dv / a_l.v - b_j.dv / b_j.v), a linear map of dv. Of the entries themselves it is
    bounded over all dv inside the brackets of v; through a skeleton a few draws of signs show the size, the root mean
    square of the draws and half as much again.
    """
    spec, entries = known.labels.spec, known.entries
    gain = np.zeros((spec.dim, spec.dim))
    gain[entries.rows, entries.columns] = entries.gain(spec)
    A, B = _relative(known.family)
    errors = known.direction.errors
    if through is None:
        squares = gain**2
        across = A.T @ squares @ B
        Q = (A.T * squares.sum(axis=1)) @ A + (B.T * squares.sum(axis=0)) @ B - across - across.T
        Q *= np.outer(errors, errors)
        nonzero = max(1, int(np.count_nonzero(errors)))
        first = math.sqrt(min(float(np.abs(Q).sum()), nonzero * float(np.linalg.eigvalsh(Q)[-1])))
    else:
        signs = np.random.default_rng(spec.dim).choice([-1.0, 1.0], (CORE.entries_for_scale, spec.dim))
        moved = [through.moved(gain * ((A @ dv)[:, None] - (B @ dv)[None, :])) for dv in signs * errors]
        first = 1.5 * math.sqrt(float(np.mean([np.sum(D**2) for D in moved])))
    # log((1 + rho) / (1 - rho e^t)) exceeds its first order by at most this factor.
    steep = float(np.max(_ratio_errors(known) * entries.slope(spec)))
    return first / (1 - min(0.5, steep))


def left_by_rounding(known: Known, through: Skeleton | None = None) -> float:
    """Frobenius error of M left by rounding: a.v and b.v are 1 / sqrt d of the lengths, so a label is as good as
    2 sqrt d eps in their ratio, independently for every entry."""
    spec, entries = known.labels.spec, known.entries
    weights = 1.0 if through is None else through.amplification(entries.rows, entries.columns)
    return 2 * math.sqrt(spec.dim) * spec.eps * float(np.linalg.norm(weights * entries.gain(spec)))


def left_in_all(known: Known, through: Skeleton | None = None) -> float:
    """Frobenius error of M left by everything but the brackets."""
    return left_by_values(known, through) + left_by_rounding(known, through)


def left_for_bisection(known: Known, whole: float, through: Skeleton | None = None) -> float:
    """What brackets may leave of the allowed error `whole` (Frobenius) once v's part and rounding are taken off."""
    # 1 % in hand: norms in the claims are rounded otherwise.
    return 0.99 * whole - left_in_all(known, through)


def sharpen(known: Known, whole: float, through: Skeleton | None = None, least: float = 0.0) -> Asking[Known]:
    """Refine v until what its error leaves in M is its share of `whole`, but not below `least`.

    Entries compared so far were compared with levels that the old error of v had shifted: they are loosened by that.
    """
    spec, direction, entries = known.labels.spec, known.direction, known.entries
    left = left_by_values(known, through)
    # With `least` the skeleton is still coarse and may look far worse conditioned than it is.
    rounding = 0.0 if least else left_by_rounding(known, through)
    if rounding > LABELS.harmless_share * whole:
        raise _hidden(rounding / (LABELS.harmless_share * whole), spec)
    if left <= LABELS.harmless_share * whole:
        return known
    target = max(direction.error * LABELS.harmless_share * whole / left, least)
    if target < 2 * spec.eps:
        raise _hidden(2 * spec.eps / target, spec)
    shifted = 1.1 * entries.largest_gain(spec) * _ratio_errors(known)
    direction = yield from refine_direction(direction, target, known.labels)
    family = replace(known.family, v=direction.v)
    return (yield from Known(known.labels, direction, family, entries.loosened(shifted)).bracketed())


Shape = Callable[[Entries], tuple[float, Array | float, Skeleton | None]]
"""What entries make of M: its allowed error (Frobenius), the weights of their radii in it, the skeleton if M is one."""


def bisected(known: Known, shape: Shape, first: Array | None, least: float = 0.0) -> Asking[Known]:
    """Bisect entries, and v where it leaves them no room, until M is within its allowed error.

    The entries at `first` are asked the closed form's number of bits before any is asked more; v is not refined below
    `least` at first.
    """

    def unmet(now: Known) -> Array:
        whole, weights, through = shape(now.entries)
        left = left_for_bisection(now, whole, through)
        # Where v leaves no room it must be sharpened first.
        return now.entries.search.unmet(max(left, LABELS.bracket_share * whole), weights)

    phase = "main"
    whole, _, through = shape(known.entries)
    known = yield from sharpen(known, whole, through, least)
    if first is not None and not known.labels.flip:
        for _ in range(theory.membership_bits(known.labels.accuracy)):
            known = yield from known.narrow(first, "main")
        phase = "repair"
    for _ in range(CORE.repairs):
        known = yield from known.narrow_until_met(unmet, phase)
        whole, _, through = shape(known.entries)
        if left_for_bisection(known, whole, through) >= LABELS.bracket_share * whole:
            break
        known = yield from sharpen(known, whole, through)
    return known


def _relative(family: EntryThresholds) -> tuple[Array, Array]:
    """a / a.v and b / b.v, (m, d) and (n, d)."""
    return family.A / (family.A @ family.v)[:, None], family.B / (family.B @ family.v)[:, None]


def _ratio_errors(known: Known) -> Array:
    """Bounds (n,) on the relative error of a.v / b.v of these entries."""
    A, B = _relative(known.family)
    squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)[None, :] - 2 * A @ B.T
    return np.asarray(
        known.direction.error * np.sqrt(np.maximum(squares, 0.0))[known.entries.rows, known.entries.columns]
    )


def shift_bounds(known: Known) -> Array:
    """By how much (n,) the levels asked may lie off: the error of v, and rounding of labels."""
    spec = known.labels.spec
    rounding = 2 * math.sqrt(spec.dim) * spec.eps
    return np.asarray(1.1 * known.entries.largest_gain(spec) * (_ratio_errors(known) + rounding))


def _hidden(beyond: float, spec: OracleSpec) -> DomainError | NotIdentifiable:
    coarser = f"an accuracy about {beyond:.1g} times coarser is in reach."
    if spec.domain.max_norm is not None:
        return DomainError(
            f"the accuracy asked for needs larger logits than max_norm {spec.domain.max_norm:g} allows: rounding "
            f"hides digits of W; {coarser}"
        )
    return NotIdentifiable(
        "the accuracy asked for is hidden by rounding of the labels: W has directions so weak beside the others "
        f"that v would have to be known beyond {spec.dtype}; {coarser}"
    )
