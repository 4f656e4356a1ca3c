"""How far rounding may take an answer: forward error to first order, up to one constant per design.

Heads have it in closed form (`forward_error`): every intermediate number is off by its own unit. Kernels differ in what
they form first: W q or X'W, values of tokens or the mixed token. The sum of squares over all of these is that of any of
them up to one constant. Errors of one head are none of another's, and errors of one token's score none of the next
one's: two tokens that share a large score lose its last digits each by itself, however near to a tie they are, and
heads whose answers cancel do not cancel their errors.

Of other references tokens and weights are changed by independent relative amounts, and what that does to an answer
stands for it. The constant is measured offline, on the reference computed in the target's arithmetic in several orders
of operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.comparing.arithmetic import ORDERS, UNIT, computed
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.heads import Heads, agree
from unsoftmax.comparing.references import Reference
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
    excess: float = 1.0
    """Times the modelled rounding that nearby questions of the target have shown."""

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

    def residual(self, X: Array, y: Array) -> Array:
        """Answers over the reference's, in float64."""
        truth, _ = self.reference.truth(X, self.arithmetic)
        return np.asarray(y.astype(truth.dtype) - truth, dtype=np.float64)

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
        units = self.excess * UNIT[self.arithmetic] * (1.0 if sharper else math.sqrt(2.0)) * self.rounding(X, rng)
        if UNIT[self.arithmetic] <= UNIT["float32"] and self._heads(X) is None:
            # Heads are computed in this order for the constant; of other references only their own orders are known.
            constants = np.maximum(constant, _term_by_term(X))
            found = np.hypot(constants.reshape(-1, *(1,) * (units.ndim - 1)) * units, self.tolerance)
        else:
            found = np.hypot(constant * units, self.tolerance)
        if self.reference.error:
            found = np.hypot(found, COMPARING.stated_over_random * self.reference.error * self.sensitivity(X, rng))
        return np.maximum(found, COMPARING.zero_deviation)


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of one kind with what the reference says and how far rounding may take the answers."""

    name: str
    X: Array
    truth: Array
    sd: Array

    def residual(self, y: Array) -> Array:
        """y - truth, in float64."""
        return np.asarray(y.astype(self.truth.dtype) - self.truth, dtype=np.float64)

    def z(self, y: Array) -> Array:
        """Residuals in units of the noise."""
        return np.asarray(self.residual(y) / np.maximum(self.sd, 1e-150))

    def rounded(self, error: float) -> Group:
        """The same with answers that are rounded by that much besides."""
        return replace(self, sd=np.hypot(self.sd, error))


def group(name: str, X: Array, noise: Noise, constant: float, rng: np.random.Generator) -> Group:
    """Sequences with their expected answers and noise."""
    truth, _ = noise.reference.truth(X, noise.arithmetic)
    return Group(name, X, truth, noise.deviation(X, constant, rng))


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


def forward_error(heads: Heads, X: Array, unit: float, summed: float) -> Array:
    """Root mean square error of each answer over the unit of rounding, (batch,) or (batch, outputs).

    `summed` is the unit in which sums over tokens run. One by one, the token that counts first, every addition rounds
    all of the sum, and what is below half its unit is lost.
    """
    squares, walk = X**2, X.shape[1] * (summed / unit) ** 2
    answer = heads.constant + (X[:, -1] if heads.residual else 0.0) + np.zeros((len(X), len(heads.constant)))
    total = answer**2
    for h in range(heads.count):
        scores, directions = _scores(heads, h, X)
        alpha = np.exp(scores - scores.max(axis=1, keepdims=True))
        alpha /= alpha.sum(axis=1, keepdims=True)
        value, O = X @ heads.V[h].T, heads.O[h]
        written = value @ O.T
        mixed = (alpha[:, None] @ value)[:, 0]
        part = mixed @ O.T
        moved = alpha[:, :, None] * (written - part[:, None])
        total += (moved**2 * _score_errors(heads, h, X, scores)[:, :, None]).sum(axis=1)
        total += ((moved.transpose(0, 2, 1) @ X) ** 2 @ directions[:, :, None])[:, :, 0]
        of_tokens = (alpha[:, None] ** 2 @ (squares @ heads.V[h].T ** 2 + value**2))[:, 0]
        of_sums = ((alpha[:, None] @ X)[:, 0] ** 2 @ heads.V[h].T ** 2 + mixed**2) * (1 + walk)
        total += (of_tokens + of_sums) @ O.T**2 + walk * part**2
        total += (np.abs(moved) * (alpha < summed)[:, :, None]).sum(axis=1) ** 2 / unit**2
        answer = answer + part
        total += part**2 + answer**2
    return np.asarray(np.sqrt(total[:, 0] if heads.scalar else total))


def _scores(heads: Heads, h: int, X: Array) -> tuple[Array, Array]:
    """Scores (batch, N) of one head, and squared errors (batch, d) of the key direction that all tokens share."""
    q = X[:, -1]
    u = heads.key_directions(q)[h]
    if heads.stored is not None:
        shared = q**2 @ heads.stored[h].T ** 2
    else:
        assert heads.K is not None
        assert heads.Q is not None
        query = q @ heads.Q[h].T
        shared = (query**2 + q**2 @ heads.Q[h].T ** 2) @ heads.K[h] ** 2
    return np.einsum("bnd,bd->bn", X, u), shared + u**2


def _score_errors(heads: Heads, h: int, X: Array, scores: Array) -> Array:
    """Squared relative errors (batch, N) of the exponentials: those of each token's own score, and of exp itself."""
    q, squares = X[:, -1], X**2
    u = heads.key_directions(q)[h]
    if heads.stored is not None:
        key = (X @ heads.stored[h]) ** 2 + squares @ heads.stored[h] ** 2
        query = q
    else:
        assert heads.K is not None
        assert heads.Q is not None
        key = 2 * (X @ heads.K[h].T) ** 2 + squares @ heads.K[h].T ** 2
        query = q @ heads.Q[h].T
    found = np.einsum("bnr,br->bn", key, query**2) + np.einsum("bnd,bd->bn", squares, u**2 + heads.c[h] ** 2)
    found += np.einsum("bnd,d->bn", X, heads.c[h]) ** 2
    return np.asarray(1 + scores**2 + (scores - scores.max(axis=1, keepdims=True)) ** 2 + found)
