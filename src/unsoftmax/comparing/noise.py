"""How far rounding may take an answer: forward error to first order, up to one constant per design.

Heads have it in closed form (`rounding`). Of other references tokens and weights are changed by independent relative
amounts, and what that does to an answer stands for it. The constant is measured offline, on the reference computed in
the target's arithmetic in several orders of operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.arithmetic import ORDERS, UNIT, computed
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.heads import Heads, agree
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.rounding import forward_error
from unsoftmax.models.base import Array

_LEAST_KNOWN = {"float64": 1.0, "float32": 1.0}
"""The same where every number that any kernel rounds is counted: weights that were written in another basis, or folded,
are each off by a unit of their own. Values turned by a rotation had been called changed in 4 of 8 layers."""


@dataclass(frozen=True)
class Noise:
    """Rounding in `arithmetic`, a declared tolerance on top of it, and what the reference's own error may do."""

    reference: Reference
    arithmetic: str
    tolerance: float = 0.0

    def sensitivity(self, X: Array, rng: np.random.Generator) -> Array:
        """Root mean square change of each answer under relative changes of size one, shaped like the answers."""
        reference, ids = self.reference, X.dtype.kind in "iu"
        step = COMPARING.relative_move if reference.known or self.arithmetic == "float64" else COMPARING.rough_move
        base = reference.double(X)
        total = np.zeros(base.shape)
        for answer in reference.moved:
            # Sums over a token are rounded as a whole: a score that two tokens share is far larger than its terms.
            relative = 0.0 if ids else rng.standard_normal(X.shape) + rng.standard_normal(X.shape[:2])[:, :, None]
            if not (ids or reference.known):
                # Errors of weights out of reach act on all tokens alike.
                relative = relative + rng.standard_normal((len(X), 1, X.shape[2]))
            tokens = X if ids else X * (1 + step * relative)
            total += ((answer(tokens) - base) / step) ** 2
        return np.asarray(np.sqrt(total / len(reference.moved) + base**2) / math.sqrt(3))

    def rounding(self, X: Array, rng: np.random.Generator) -> Array:
        """Forward error of each answer over the unit of rounding, up to the constant, shaped like the answers."""
        heads, unit = self._heads(X), UNIT[self.arithmetic]
        if heads is None:
            return self.sensitivity(X, rng)
        return forward_error(heads, X, unit, min(unit, UNIT["float32"]))

    def _heads(self, X: Array) -> Heads | None:
        """The reference's heads, if they answer these sequences as it does: a window that short ones do not show is no
        part of their form, and was taken for rounding."""
        heads = self.reference.heads
        return heads if heads is not None and agree(heads, self.reference.double, X) else None

    def errors(self, X: Array) -> list[Array]:
        """Rounding errors of the reference in this arithmetic, one array per order of operations; sums term by term
        are formed for as many of the first sequences as fit."""
        truth, sharper = self.reference.truth(X, self.arithmetic)
        if not sharper:
            return []
        heads = self._heads(X)
        found = self.reference.computed(X, self.arithmetic)
        if heads is not None:
            few = max(1, COMPARING.largest_products // (X.shape[1] * heads.dim * heads.dim))
            found += [computed(heads, X[:few] if order == 2 else X, self.arithmetic, order) for order in ORDERS]
        return [np.asarray(y.astype(truth.dtype) - truth[: len(y)], dtype=np.float64) for y in found]

    def constant(self, design: Callable[[], Array], rng: np.random.Generator, *, wide: bool = False) -> float:
        """The constant of a design, from fresh probes of its kind; `wide`: where kernels differ more than the orders
        tried, or probes are few."""
        X = design()
        errors = self.errors(X)
        if not errors:
            return max(COMPARING.margin, float(_term_by_term(X).max(initial=0.0)))
        unit = np.maximum(UNIT[self.arithmetic] * self.rounding(X, rng), 1e-300)
        sizes = [float(np.sqrt(np.mean((e / unit[: len(e)]) ** 2))) for e in errors]
        unknown = self._heads(X) is None
        margin = COMPARING.wide_margin if wide or unknown else COMPARING.margin
        least = (
            COMPARING.least_constant if unknown else _LEAST_KNOWN.get(self.arithmetic, COMPARING.least_short_constant)
        )
        return max(least, margin * max(sizes))

    def deviation(self, X: Array, constant: float, rng: np.random.Generator) -> Array:
        """Standard deviation of (answer - truth), shaped like the answers."""
        _, sharper = self.reference.truth(X[:1], self.arithmetic)
        units = UNIT[self.arithmetic] * (1.0 if sharper else math.sqrt(2.0)) * self.rounding(X, rng)
        if UNIT[self.arithmetic] <= UNIT["float32"] and self._heads(X) is None:
            # Heads are computed in this order for the constant; of other references only their own orders are known.
            constants = np.maximum(constant, _term_by_term(X))
            found = np.hypot(constants.reshape(-1, *(1,) * (units.ndim - 1)) * units, self.tolerance)
        else:
            found = np.hypot(constant * units, self.tolerance)
        if self.reference.error:
            found = np.hypot(found, COMPARING.stated_over_random * self.reference.error * self.sensitivity(X, rng))
        return np.maximum(found, COMPARING.zero_deviation)


def _term_by_term(X: Array) -> Array:
    """Constant of sums taken one by one, (batch,): over the tokens of a sequence or the entries of a token.

    Equal terms are rounded alike, so that n of them err as n^2 others do: 13 of 120 unchanged token heads had alarmed
    at sequences of 512 tokens that such sums answered.
    """
    if X.dtype.kind in "iu":
        terms = np.array([(np.unique(ids, return_counts=True)[1] ** 2).sum() for ids in X], dtype=np.float64)
    else:
        terms = np.full(len(X), float(max(X.shape[1:])))
    return np.asarray(COMPARING.margin * COMPARING.sequential_error * np.sqrt(terms))
