"""Sub-programs on labels for the entries of M = A W B': rounds of bisection.

Theory: docs/theory/membership.md, "One bit per bit", W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.labels.asking import Labels
from unsoftmax.probes.base import Array
from unsoftmax.probes.thresholds import LARGEST_SHARE_LOGIT, EntryThresholds, largest_product
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
