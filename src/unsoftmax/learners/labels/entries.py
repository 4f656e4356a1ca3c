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
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.learners.labels.asking import Direction, Labels, refine_direction
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.probes.base import Array
from unsoftmax.probes.thresholds import LARGEST_SHARE_LOGIT, EntryThresholds, largest_product, random_bases
from unsoftmax.solvers.bisection import Search
from unsoftmax.spec import OracleSpec


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
        share = LABELS.search_share / labels.spec.dim**2
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
        """|a| |b| for these levels: typical entries at typical logits, no level beyond LARGEST_SHARE_LOGIT."""
        with np.errstate(divide="ignore"):
            wanted = np.minimum(CORE.typical_logit / self.size, LARGEST_SHARE_LOGIT / np.abs(levels))
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


@dataclass(frozen=True, eq=False)
class Known:
    """What labels told so far: the direction of v, thresholds made with it, and entries of M under search."""

    labels: Labels
    direction: Direction
    family: EntryThresholds
    entries: Entries

    def holding(self, rows: Array, columns: Array) -> Known:
        """With these entries under search too; of those that were already, what is known is kept."""
        d, own = self.labels.spec.dim, self.entries
        new = ~np.isin(rows * d + columns, own.rows * d + own.columns)
        more = Entries.of(rows[new], columns[new], own.size, self.labels)
        return replace(self, entries=own.joined(more) if len(own.rows) else more) if new.any() else self

    def narrow(self, index: Array, phase: str, cuts: int = 1) -> Asking[Known]:
        """One round: the entries at `index` are compared with their next levels, `cuts` of them each."""
        entries, labels = self.entries, self.labels
        levels = entries.search.levels(cuts)[index].ravel()
        index = np.repeat(index, cuts)
        product = entries.product(levels, labels.spec) * labels.scales(len(index))
        answers = yield self.family.above(entries.rows[index], entries.columns[index], levels, product, phase)
        return replace(self, entries=replace(entries, search=entries.search.told(index, levels, answers > 0.5)))

    def narrow_until_met(self, unmet: Callable[[Known], Array], phase: str, cuts: int = 1) -> Asking[Known]:
        """Rounds of bisection until `unmet` names no entry any more."""
        known = self
        for _ in range(self.labels.rounds):
            index = unmet(known)
            if len(index) == 0:
                return known
            known = yield from known.narrow(index, phase, cuts)
        raise _insensitive(len(index), known.entries, self.labels)

    def bracketed(self) -> Asking[Known]:
        """Brackets grow until nearly all are closed; the few largest entries go on growing while others are halved."""

        def loose(known: Known) -> Array:
            index = known.entries.loose
            return index if len(index) > LABELS.open_brackets * len(known.entries.rows) else index[:0]

        return (yield from self.narrow_until_met(loose, "pilot"))


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
        target = LABELS.value_error * accuracy * min(1.0, size * limit / CORE.typical_logit)
        if size > least and direction.error <= target:
            return direction, family, size
        if direction.error <= 2 * spec.eps:
            return direction, family, size if size > least else 0.0
        if size <= least:
            target = (
                min(target, LABELS.sharpened_at_a_time * direction.error)
                if size
                else LABELS.sharpened_at_a_time * direction.error
            )
        # A quarter: the next look may find the size half as large.
        direction = yield from refine_direction(direction, max(target / 4, 2 * spec.eps), labels)


def hidden_below(error: float, labels: Labels) -> float:
    """Typical |M_ij| that an error of v, and rounding, can imitate inside the norm limit."""
    spec = labels.spec
    limit = largest_product(spec.domain.norm_limit, spec.dtype)
    return CORE.audible * max(math.sqrt(spec.dim) * (error + spec.eps) / limit, 2.0**-LABELS.most_doublings)


def find_size(family: EntryThresholds, error: float, labels: Labels) -> Asking[float]:
    """Typical |M_ij| to a factor of about 2, from a few entries; 0.0 if no entry is visible.

    `error` is the error of v: a level whose logit is not well above it cannot be told from 0.
    """
    spec, d = labels.spec, len(family.v)
    n = min(d, CORE.pilot_entries) if labels.flip == 0 else theory.membership_noisy_pilot(labels.flip, labels.delta)
    rows, columns = np.arange(n) % d, (np.arange(n) + np.arange(n) // d) % d
    limit, start = largest_product(spec.domain.norm_limit, spec.dtype), 0.5 / math.sqrt(d)
    smallest = hidden_below(error, labels)

    def look(x: float) -> Asking[float]:
        """Whether most entries are beyond x, on either side: a sign asked at another scale may be the error of v."""
        levels = x * np.repeat([1.0, -1.0], n)
        product = np.minimum(CORE.typical_logit / np.full(2 * n, x), limit) * labels.scales(2 * n)
        answers = yield family.above(np.tile(rows, 2), np.tile(columns, 2), levels, product, "pilot")
        above = answers.reshape(2, n) > 0.5
        # An entry is outside on one side at most, and either of its two answers may be a flip.
        outside = (above[0].sum() + (~above[1]).sum() - 2 * n * labels.flip) / (1 - 2 * labels.flip)
        return INVISIBLE if 2 * outside > n else SATURATED

    steps = Steps(shorter=2.0**-16, longer=2.0**8, limit=start * 2.0**LABELS.most_doublings, floor=smallest, narrow=5.0)
    found = yield from find_scale(look, start, steps)
    if found.low == 0:
        return 0.0
    if math.isinf(found.high):
        raise NotIdentifiable(
            "two-token sequences answer the same however far the threshold is moved: the label does not depend on the "
            "scores. The target is no softmax head."
        )
    # The median of |M_ij| lies within a factor of 2 above; it is 0.67 standard deviations of a Gaussian entry.
    return found.scale * math.sqrt(2) / 0.67
