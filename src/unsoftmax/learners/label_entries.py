"""Sub-programs on labels for the entries of M = A W B': their size, rounds of bisection, what errors of v leave."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import DomainError, NotIdentifiable
from unsoftmax.learners.base import Asking
from unsoftmax.learners.labels import ROUNDS, Direction, Labels, refine_direction
from unsoftmax.probes.base import Array
from unsoftmax.probes.thresholds import LARGEST_SHARE_LOGIT, EntryThresholds, largest_product
from unsoftmax.solvers.bisection import Search
from unsoftmax.solvers.skeleton import Skeleton
from unsoftmax.spec import OracleSpec

TYPICAL_LOGIT = 0.7
"""Root mean square of the logits: large enough that errors of v weigh little, small enough that few exceed 2."""

_VALUE_SHARE = 0.3
"""Share of the accuracy that errors of v may use up; v is only d of d^2 + d numbers, so its bits are cheap."""

_SEARCH_SHARE = 0.5
"""Share of delta that the entries may use up."""

_STRAGGLING = 0.1
_SIGN_DRAWS = 12
_PILOT = 6
_NOISY_PILOT = 32
_EXPONENTS = 300


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries M[rows, columns] of M = A W B' under search; `size` is their typical magnitude."""

    rows: Array
    columns: Array
    search: Search
    size: float

    @classmethod
    def of(cls, rows: Array, columns: Array, size: float, labels: Labels) -> Entries:
        """Entries of which only the typical size is known; rows, columns (n,)."""
        share = _SEARCH_SHARE / labels.spec.dim**2
        return cls(rows, columns, labels.search(len(rows), size, share), size)

    def joined(self, other: Entries) -> Entries:
        """Both, the other's entries last."""
        rows, columns = np.concatenate([self.rows, other.rows]), np.concatenate([self.columns, other.columns])
        return replace(self, rows=rows, columns=columns, search=self.search.joined(other.search))

    @property
    def loose(self) -> Array:
        """Entries whose magnitude is not known yet."""
        return np.flatnonzero(~(self.search.radius <= np.maximum(self.size, np.abs(self.search.center) / 2)))

    def product(self, levels: Array, spec: OracleSpec) -> Array:
        """|a| |b| for these levels: typical entries at TYPICAL_LOGIT, no level beyond LARGEST_SHARE_LOGIT."""
        with np.errstate(divide="ignore"):
            wanted = np.minimum(TYPICAL_LOGIT / self.size, LARGEST_SHARE_LOGIT / np.abs(levels))
        return np.minimum(wanted, largest_product(spec.domain.norm_limit))

    def gain(self, spec: OracleSpec) -> Array:
        """Error of each entry per relative error of a.v / b.v, (n,): (1 + e^t) / (|a| |b|)."""
        product = self.product(self.search.center, spec)
        return np.asarray((1 + np.exp(self.search.center * product)) / product)


def narrow(
    entries: Entries, index: Array, family: EntryThresholds, labels: Labels, phase: str, cuts: int = 1
) -> Asking[Entries]:
    """One round: the entries at `index` are compared with their next levels, `cuts` of them each."""
    levels = entries.search.levels(cuts)[index].ravel()
    index = np.repeat(index, cuts)
    product = entries.product(levels, labels.spec) * labels.scales(len(index))
    answers = yield family.above(entries.rows[index], entries.columns[index], levels, product, phase)
    return replace(entries, search=entries.search.told(index, levels, answers > 0.5))


def bracket(entries: Entries, family: EntryThresholds, labels: Labels) -> Asking[Entries]:
    """Grow brackets until nearly all are closed; the few largest entries go on growing while others are halved."""
    for _ in range(_EXPONENTS if labels.flip == 0 else ROUNDS):
        index = entries.loose
        if len(index) <= _STRAGGLING * len(entries.rows):
            return entries
        entries = yield from narrow(entries, index, family, labels, "pilot")
    raise _insensitive(len(index), entries)


def narrow_until_met(
    entries: Entries,
    unmet: Callable[[Entries], Array],
    family: EntryThresholds,
    labels: Labels,
    phase: str,
    cuts: int = 1,
) -> Asking[Entries]:
    """Rounds of bisection until `unmet` names no entry any more."""
    for _ in range(_EXPONENTS if labels.flip == 0 else ROUNDS):
        index = unmet(entries)
        if len(index) == 0:
            return entries
        entries = yield from narrow(entries, index, family, labels, phase, cuts)
    raise _insensitive(len(index), entries)


def _insensitive(count: int, entries: Entries) -> NotIdentifiable:
    return NotIdentifiable(
        f"{count} of {len(entries.rows)} families of two-token sequences answer the same however far the threshold is "
        "moved: the label does not depend on the scores there. The target is no softmax head."
    )


def find_size(family: EntryThresholds, error: float, labels: Labels) -> Asking[float]:
    """Typical |M_ij| to a factor of about 2, from a few entries; 0.0 if no entry is visible.

    `error` is the error of v: a level whose logit is not well above it cannot be told from 0.
    """
    spec, d = labels.spec, len(family.v)
    n = min(d, _PILOT) if labels.flip == 0 else _NOISY_PILOT
    rows, columns = np.arange(n) % d, (np.arange(n) + np.arange(n) // d) % d
    limit, start = largest_product(spec.domain.norm_limit), 0.5 / math.sqrt(d)
    smallest = 100 * max(math.sqrt(d) * (error + spec.eps) / limit, 2.0**-_EXPONENTS)

    def most_above(exponents: list[int]) -> Asking[list[bool]]:
        """For each exponent whether most entries exceed 2^exponent typical ones; one round."""
        x = start * 2.0 ** np.repeat(exponents, 2 * n)
        # Both sides every time: a sign asked at another scale may have been the error of v.
        levels = x * np.tile(np.repeat([1.0, -1.0], n), len(exponents))
        product = np.minimum(TYPICAL_LOGIT / x, limit) * labels.scales(len(x))
        times = 2 * len(exponents)
        answers = yield family.above(np.tile(rows, times), np.tile(columns, times), levels, product, "pilot")
        above = answers.reshape(len(exponents), 2, n) > 0.5
        outside = above[:, 0] | ~above[:, 1]
        return [bool(one) for one in 2 * outside.sum(axis=1) > n]

    low, high, step = -8, 8, 8
    found = yield from most_above([low, 0, high])
    while all(found) or not any(found):
        step *= 2
        if all(found):
            low, high = high, high + step
            if high > _EXPONENTS:
                raise NotIdentifiable(
                    "two-token sequences answer the same however far the threshold is moved: the label does not depend "
                    "on the scores. The target is no softmax head."
                )
        else:
            low, high = low - step, low
            if start * 2.0**high < smallest:
                return 0.0
        found = yield from most_above([low, (low + high) // 2, high])
    exponents = [low, (low + high) // 2, high]
    while True:
        above = [e for e, yes in zip(exponents, found, strict=True) if yes]
        below = [e for e, yes in zip(exponents, found, strict=True) if not yes]
        low, high = max(above, default=low), min((e for e in below if e > max(above, default=low)), default=high)
        if high - low <= 1:
            break
        exponents = sorted({low + max(1, (high - low) * k // 4) for k in (1, 2, 3)} - {high})
        found = yield from most_above(exponents)
    # The median of |M_ij| lies between; it is 0.67 standard deviations of a Gaussian entry.
    return float(start * 2.0 ** (low + 0.5) / 0.67)


def left_by_values(
    direction: Direction, family: EntryThresholds, entries: Entries, spec: OracleSpec, through: Skeleton | None = None
) -> float:
    """Frobenius error of M left by the error of v; M is the entries themselves, or the skeleton they give.

    Entry (l, j) errs by gain (a_l.dv / a_l.v - b_j.dv / b_j.v). The entries of v err independently of each other, so
    a few draws of signs show the size: the root mean square of the draws, and half as much again.
    """
    gain = np.zeros((spec.dim, spec.dim))
    gain[entries.rows, entries.columns] = entries.gain(spec)
    A, B = family.A / (family.A @ family.v)[:, None], family.B / (family.B @ family.v)[:, None]
    signs = np.random.default_rng(spec.dim).choice([-1.0, 1.0], (_SIGN_DRAWS, spec.dim))
    squares = []
    for dv in signs * direction.errors:
        D = gain * ((A @ dv)[:, None] - (B @ dv)[None, :])
        squares.append(np.sum((D if through is None else through.moved(D)) ** 2))
    return 1.5 * math.sqrt(float(np.mean(squares)))


def left_for_bisection(
    direction: Direction,
    family: EntryThresholds,
    entries: Entries,
    whole: float,
    spec: OracleSpec,
    through: Skeleton | None = None,
) -> float:
    """What brackets may leave of the allowed error `whole` (Frobenius) once v's part is taken off."""
    # 1 % in hand: norms in the claims are rounded otherwise.
    return 0.99 * whole - left_by_values(direction, family, entries, spec, through)


def sharpen(
    direction: Direction,
    family: EntryThresholds,
    entries: Entries,
    whole: float,
    labels: Labels,
    through: Skeleton | None = None,
    least: float = 0.0,
) -> Asking[tuple[Direction, EntryThresholds]]:
    """Refine v until what its error leaves in M is its share of `whole`, but not below `least`."""
    spec = labels.spec
    left = left_by_values(direction, family, entries, spec, through)
    if left <= _VALUE_SHARE * whole:
        return direction, family
    target = max(direction.error * _VALUE_SHARE * whole / left, least)
    if target < 2 * spec.eps:
        coarser = f"an accuracy about {2 * spec.eps / target:.1g} times coarser is in reach."
        if spec.domain.max_norm is not None:
            raise DomainError(
                f"the accuracy asked for needs larger logits than max_norm {spec.domain.max_norm:g} allows: rounding "
                f"hides digits of W; {coarser}"
            )
        raise NotIdentifiable(
            "the accuracy asked for is hidden by rounding of the labels: W has directions so weak beside the others "
            f"that v would have to be known beyond {spec.dtype}; {coarser}"
        )
    direction = yield from refine_direction(direction, target, labels)
    return direction, replace(family, v=direction.v)
