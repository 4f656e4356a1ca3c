"""Sub-programs on labels for the entries of M = A W B': rounds of bisection.

Sub-programs on labels: how large the entries of M = A W B' are, with v known well enough to tell.

Theory: docs/theory/membership.md, "One bit per bit", W.
Theory: docs/theory/membership.md, "One bit per bit", unknown norm of W.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import PILOT
from unsoftmax.learners.labels.asking import Direction, Labels, refine_direction
from unsoftmax.probes.base import Array
from unsoftmax.probes.thresholds import LARGEST_SHARE_LOGIT, EntryThresholds, largest_product, random_bases
from unsoftmax.solvers.bisection import Search
from unsoftmax.spec import OracleSpec

TYPICAL_LOGIT = 0.7
"""Root mean square of the logits: large enough that errors of v weigh little, small enough that few exceed 2."""

_SEARCH_SHARE = 0.5
"""Share of delta that the entries may use up."""

_STRAGGLING = 0.1
"""Share of the entries whose brackets may still be open when halving begins; waiting for the few largest would cost all
others rounds."""

EXPONENTS = 300
"""Doublings after which a number is given up as unbounded."""

VALUE_SHARE = 1 / 32
"""Error of v beside the accuracy of W at typical logits, so that what it leaves in W is a small part."""

_VISIBLE = 100
"""How far above the error of v and rounding an entry must be to be told from 0."""

_FURTHER = 2.0**-10
"""Bits by which v is sharpened at a time while no entry shows: ten."""


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries M[rows, columns] of M = A W B' under search; `size` is their typical magnitude.

    `largest_size` is the largest typical magnitude any of them was asked with: their shortest tokens.
    """

    rows: Array
    columns: Array
    search: Search
    size: float
    largest_size: float

    @classmethod
    def of(cls, rows: Array, columns: Array, size: float, labels: Labels) -> Entries:
        """Entries of which only the typical size is known; rows, columns (n,)."""
        share = _SEARCH_SHARE / labels.spec.dim**2
        return cls(rows, columns, labels.search(len(rows), size, share), size, size)

    def joined(self, other: Entries) -> Entries:
        """Both, the other's entries last."""
        rows, columns = np.concatenate([self.rows, other.rows]), np.concatenate([self.columns, other.columns])
        largest = max(self.largest_size, other.largest_size)
        return replace(self, rows=rows, columns=columns, search=self.search.joined(other.search), largest_size=largest)

    def resized(self, size: float) -> Entries:
        """The same entries, asked with another typical magnitude from now on."""
        return replace(self, size=size, largest_size=max(size, self.largest_size))

    def loosened(self, by: Array) -> Entries:
        """The same entries when each answer so far may have been about a level `by` (n,) away."""
        return replace(self, search=self.search.loosened(by))

    @property
    def loose(self) -> Array:
        """Entries whose magnitude is not known yet."""
        return np.flatnonzero(~(self.search.radius <= np.maximum(self.size, np.abs(self.search.center) / 2)))

    def product(self, levels: Array, spec: OracleSpec) -> Array:
        """|a| |b| for these levels: typical entries at TYPICAL_LOGIT, no level beyond LARGEST_SHARE_LOGIT."""
        with np.errstate(divide="ignore"):
            wanted = np.minimum(TYPICAL_LOGIT / self.size, LARGEST_SHARE_LOGIT / np.abs(levels))
        return np.minimum(wanted, largest_product(spec.domain.norm_limit, spec.dtype))

    def gain(self, spec: OracleSpec) -> Array:
        """Error of each entry per relative error of a.v / b.v, (n,): (1 + e^t) / (|a| |b|), t = |a| |b| M."""
        return np.asarray(self.slope(spec) / self.product(self.search.center, spec))

    def slope(self, spec: OracleSpec) -> Array:
        """Error of each logit per relative error of a.v / b.v, (n,): 1 + e^t."""
        return np.asarray(1 + np.exp(self.search.center * self.product(self.search.center, spec)))

    def largest_gain(self, spec: OracleSpec) -> Array:
        """Gain (n,) of the least favourable question so far."""
        return np.maximum(self.gain(spec), replace(self, size=self.largest_size).gain(spec))


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
    for _ in range(labels.rounds):
        index = entries.loose
        if len(index) <= _STRAGGLING * len(entries.rows):
            return entries
        entries = yield from narrow(entries, index, family, labels, "pilot")
    raise _insensitive(len(index), entries, labels)


def narrow_until_met(
    entries: Entries,
    unmet: Callable[[Entries], Array],
    family: EntryThresholds,
    labels: Labels,
    phase: str,
    cuts: int = 1,
) -> Asking[Entries]:
    """Rounds of bisection until `unmet` names no entry any more."""
    for _ in range(labels.rounds):
        index = unmet(entries)
        if len(index) == 0:
            return entries
        entries = yield from narrow(entries, index, family, labels, phase, cuts)
    raise _insensitive(len(index), entries, labels)


def _insensitive(count: int, entries: Entries, labels: Labels) -> NotIdentifiable | ModelMismatch:
    if labels.flip:
        return labels.unsettled(f"{count} of {len(entries.rows)} families of two-token sequences")
    return NotIdentifiable(
        f"{count} of {len(entries.rows)} families of two-token sequences answer the same however far the threshold is "
        "moved: the label does not depend on the scores there. The target is no softmax head, or some labels are wrong."
    )


def visible_size(
    direction: Direction, accuracy: float, labels: Labels
) -> Asking[tuple[Direction, EntryThresholds, float]]:
    """Typical |M_ij| (0.0 if none is visible), the families that show M, and v as well as these need it.

    An error of v looks like a score: at logit t it must be t times smaller. Where the norm limit keeps tokens short the
    logits are small, so v is refined and the size found anew until what was found is not the error of v.
    """
    spec = labels.spec
    limit = largest_product(spec.domain.norm_limit, spec.dtype)
    while True:
        family = EntryThresholds(*random_bases(direction.v, labels.rng), direction.v, spec.dtype)
        size = yield from find_size(family, direction.error, labels)
        if math.isinf(limit):
            return direction, family, size
        least = hidden_below(direction.error, labels)
        target = VALUE_SHARE * accuracy * min(1.0, size * limit / TYPICAL_LOGIT)
        if size > least and direction.error <= target:
            return direction, family, size
        if direction.error <= 2 * spec.eps:
            return direction, family, size if size > least else 0.0
        if size <= least:
            target = min(target, _FURTHER * direction.error) if size else _FURTHER * direction.error
        # A quarter: the next look may find the size half as large.
        direction = yield from refine_direction(direction, max(target / 4, 2 * spec.eps), labels)


def hidden_below(error: float, labels: Labels) -> float:
    """Typical |M_ij| that an error of v, and rounding, can imitate inside the norm limit."""
    spec = labels.spec
    limit = largest_product(spec.domain.norm_limit, spec.dtype)
    return _VISIBLE * max(math.sqrt(spec.dim) * (error + spec.eps) / limit, 2.0**-EXPONENTS)


def find_size(family: EntryThresholds, error: float, labels: Labels) -> Asking[float]:
    """Typical |M_ij| to a factor of about 2, from a few entries; 0.0 if no entry is visible.

    `error` is the error of v: a level whose logit is not well above it cannot be told from 0.
    """
    spec, d = labels.spec, len(family.v)
    n = min(d, PILOT) if labels.flip == 0 else theory.membership_noisy_pilot(labels.flip, labels.delta)
    rows, columns = np.arange(n) % d, (np.arange(n) + np.arange(n) // d) % d
    limit, start = largest_product(spec.domain.norm_limit, spec.dtype), 0.5 / math.sqrt(d)
    smallest = hidden_below(error, labels)

    def most_above(exponents: list[int]) -> Asking[list[bool]]:
        """For each exponent whether most entries exceed 2^exponent typical ones; one round."""
        x = start * 2.0 ** np.repeat(exponents, 2 * n)
        # Both sides every time: a sign asked at another scale may have been the error of v.
        levels = x * np.tile(np.repeat([1.0, -1.0], n), len(exponents))
        product = np.minimum(TYPICAL_LOGIT / x, limit) * labels.scales(len(x))
        times = 2 * len(exponents)
        answers = yield family.above(np.tile(rows, times), np.tile(columns, times), levels, product, "pilot")
        above = answers.reshape(len(exponents), 2, n) > 0.5
        outside = above[:, 0].sum(axis=1) + (~above[:, 1]).sum(axis=1)
        # An entry is outside on one side at most, and either of its two answers may be a flip.
        outside = (outside - 2 * n * labels.flip) / (1 - 2 * labels.flip)
        return [bool(one) for one in 2 * outside > n]

    low, high, step = -8, 8, 8
    found = yield from most_above([low, 0, high])
    while all(found) or not any(found):
        step *= 2
        if all(found):
            low, high = high, high + step
            if high > EXPONENTS:
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
