"""Sub-programs on labels: decisions that survive flips, and the direction of v.

Theory: docs/theory/membership.md, "One bit per bit", direction of v.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.labels.constants import LABELS
from unsoftmax.probes.base import Array, Probes, Request, one_row
from unsoftmax.probes.scales import power_of_two
from unsoftmax.probes.thresholds import coordinate_ratio
from unsoftmax.solvers.beliefs import Beliefs
from unsoftmax.solvers.bisection import Brackets, Search
from unsoftmax.spec import OracleSpec

VALUE_ERROR, SCORE_ERROR, FLIPS = "error of v", "error of W", "flip probability"
"""Names of the claims `Allowance.values`, `scores` and `flips` of heads behind labels."""


@dataclass(frozen=True)
class Labels:
    """How labels are read: flips of probability `flip`, and what may go wrong in all with probability `delta`.

    A question is never repeated word for word, since a ledger would repeat its answer: repeats are other sequences with
    the same answer (longer or shorter tokens).
    """

    spec: OracleSpec
    rng: np.random.Generator
    flip: float = 0.0
    delta: float = 0.0
    accuracy: float = 1e-9

    @property
    def rounds(self) -> int:
        """Rounds after which a search has failed: labels that flip as declared settle long before."""
        if self.flip == 0:
            return 300
        finest = min(self.accuracy, 1e-3) / 1024
        expected = theory.membership_noisy_rounds(self.spec.dim, finest, self.flip, self.delta)
        return min(LABELS.most_rounds, LABELS.settled_over_expected * expected + LABELS.rounds_in_hand)

    def unsettled(self, what: str) -> ModelMismatch:
        """The error of labels that flip otherwise than declared."""
        return ModelMismatch(
            f"{what} do not settle in the time that flips of the declared probability {self.flip:g} take: they flip "
            "more often, or not independently, or the target is no softmax head."
        )

    def scales(self, n: int) -> Array:
        """Factors (n,) for questions whose answer does not depend on them."""
        return np.ones(n) if self.flip == 0 else self.rng.uniform(0.5, 1.0, n)

    def decide(self, n: int, ask: Callable[[Array, Array], Request]) -> Asking[Array]:
        """n yes-or-no questions (boolean (n,)), each wrong with probability at most delta / (40 dim).

        `ask(index, scales)` makes the probes. Without flips one answer decides; with them a lead of answers does.
        """
        if self.flip == 0:
            answers = yield ask(np.arange(n), np.ones(n))
            return np.asarray(answers > 0.5)
        lead = theory.membership_noisy_lead(self.spec.dim, self.flip, self.delta)
        tally = np.zeros(n)
        for _ in range(math.ceil(LABELS.settled_over_expected * lead / (1 - 2 * self.flip)) + LABELS.rounds_in_hand):
            if len(index := np.flatnonzero(np.abs(tally) < lead)) == 0:
                return tally > 0
            answers = yield ask(index, self.scales(len(index)))
            tally[index] += np.where(answers > 0.5, 1, -1)
        raise self.unsettled(f"{len(index)} of {n} decisions")

    def search(self, n: int, scale: float | None, share: float) -> Search:
        """A search for n numbers, in [0, 1] or unbounded of size `scale`; each misses with probability delta share."""
        if self.flip:
            return Beliefs.fresh(n, self.flip, self.delta * share, scale)
        return Brackets.between(n, 0, 1) if scale is None else Brackets.open(n, scale * 0.7)


@dataclass(frozen=True, eq=False)
class Direction:
    """What is known of v: signs (d,), the largest entry p, and the search for the other |v_i| / |v_p|."""

    signs: Array
    largest: int
    others: Array
    search: Search

    @property
    def v(self) -> Array:
        """Unit estimate (d,)."""
        u = self._relative()
        return np.asarray(u / np.linalg.norm(u))

    @property
    def errors(self) -> Array:
        """Bounds (d,) on the errors of the entries of v, before the unit estimate is made unit."""
        bounds = np.zeros(len(self.signs))
        bounds[self.others] = self.search.radius / np.linalg.norm(self._relative())
        return bounds

    @property
    def error(self) -> float:
        """Bound on the error of the unit estimate."""
        return float(np.linalg.norm(self.errors))

    def unmet(self, target: float) -> Array:
        """Which of `others` to ask next on the way to an error of `target`."""
        return self.search.unmet(target * float(np.linalg.norm(self._relative())))

    def _relative(self) -> Array:
        u = self.signs.astype(np.float64)
        u[self.others] *= self.search.center
        return u


def find_direction(labels: Labels) -> Asking[Direction]:
    """Signs from +-e_i, the largest entry by knockout: 4 d decisions at most, log4 d + 2 rounds."""
    spec = labels.spec
    d = spec.dim
    length = unit_length(spec)
    both = np.concatenate([np.eye(d), -np.eye(d)]) * length
    positive = yield from labels.decide(2 * d, lambda index, scale: one_row(both[index] * scale[:, None]))
    up, down = positive[:d], positive[d:]
    _refuse_what_is_not_odd(up, down)
    signs = up.astype(int) - down.astype(int)
    standing = np.flatnonzero(signs)
    while len(standing) > 1:
        # Groups of four, everyone against everyone: half the rounds of a plain knockout for twice its few queries.
        groups = [standing[k : k + 4] for k in range(0, len(standing), 4)]
        left, right = np.array([pair for group in groups for pair in combinations(group, 2)]).T

        def ask(index: Array, scale: Array, left: Array = left, right: Array = right) -> Probes:
            x = np.zeros((len(index), d))
            x[np.arange(len(index)), left[index]] = signs[left[index]]
            x[np.arange(len(index)), right[index]] = -signs[right[index]]
            return one_row(x * (scale * length)[:, None])

        beats = yield from labels.decide(len(left), ask)
        wins = np.bincount(np.where(beats, left, right), minlength=d)
        standing = np.array([group[np.argmax(wins[group])] for group in groups])
    p = int(standing[0])
    others = np.setdiff1d(np.flatnonzero(signs), [p])
    return Direction(signs, p, others, labels.search(len(others), None, 0.25 / d))


def _refuse_what_is_not_odd(up: Array, down: Array) -> None:
    d = len(up)
    if (up & down).all():
        raise NotIdentifiable(
            "every one-token query answered 1, and so did its negative: the label is constant on one token, as if "
            "f > 0 everywhere; a constant answer shows nothing of v or W."
        )
    if (up & down).any():
        raise ModelMismatch(
            f"{int((up & down).sum())} of {d} unit vectors answered 1 together with their negatives; f([x]) = x . v is "
            "positive on one side only. The target has a constant term, is no softmax head, or flips more labels than "
            "`flip_probability` declares."
        )
    if not (up | down).any():
        raise NotIdentifiable(
            "every one-token query and its negative answered 0: v = 0, or f <= 0 everywhere; the label is constant and "
            "no query shows v or W."
        )


def refine_direction(direction: Direction, target: float, labels: Labels, cuts: int = 1) -> Asking[Direction]:
    """Bisect the entries of v, in lockstep, until the unit estimate is within `target`; `cuts` levels a round."""
    length = unit_length(labels.spec)
    for _ in range(labels.rounds):
        index = direction.unmet(target)
        if len(index) == 0:
            return direction
        levels = direction.search.levels(cuts)[index].ravel()
        index = np.repeat(index, cuts)
        scale = labels.scales(len(index)) * length
        chosen = direction.others[index]
        answers = yield coordinate_ratio(direction.signs, direction.largest, chosen, levels, scale)
        direction = replace(direction, search=direction.search.told(index, levels, answers > 0.5))
    raise labels.unsettled(f"the answers on one token to {len(index)} questions")


def halved(
    brackets: Brackets, times: int, ask: Callable[[Array], Request], above: Callable[[Array], Array]
) -> Asking[Brackets]:
    """Every bracket halved so often: `ask(levels)` makes the probes, `above(labels)` says which numbers are larger."""
    for _ in range(times):
        level = brackets.levels()[:, 0]
        answers = yield ask(level)
        brackets = brackets.told(np.arange(len(level)), level, above(answers > 0.5))
    return brackets


def unit_length(spec: OracleSpec) -> float:
    """Length of single tokens, a power of two."""
    return power_of_two(min(1.0, spec.domain.norm_limit / 1.5))
