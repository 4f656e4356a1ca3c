"""Sub-programs on labels: decisions that survive flips, the direction of v, the size of W, rounds of bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.base import Asking
from unsoftmax.probes.base import Array, LazyProbes, Probes, one_row
from unsoftmax.probes.scales import power_of_two
from unsoftmax.probes.thresholds import LARGEST_SHARE_LOGIT, EntryThresholds, coordinate_ratio, largest_product
from unsoftmax.solvers.beliefs import Beliefs
from unsoftmax.solvers.bisection import Brackets, Search
from unsoftmax.spec import OracleSpec

VALUE_ERROR, SCORE_ERROR, FLIPS = "error of v", "error of W", "flip probability"
"""Names of the claims a verification of labels reads."""

TYPICAL_LOGIT = 0.7
"""Root mean square of the logits: large enough that errors of v weigh little, small enough that few exceed 2."""

_PILOT = 6
_NOISY_PILOT = 32
_EXPONENTS = 300
_ROUNDS = 4000


@dataclass(frozen=True)
class Labels:
    """How labels are read: flips of probability `flip`, and what may go wrong in all with probability `delta`.

    A question is never repeated word for word: repeats are other sequences with the same answer (longer or shorter
    tokens), so a target that answers the same sequence the same way is averaged as well as a forgetful one.
    """

    spec: OracleSpec
    rng: np.random.Generator
    flip: float = 0.0
    delta: float = 0.0

    def scales(self, n: int) -> Array:
        """Factors (n,) for questions whose answer does not depend on them."""
        return np.ones(n) if self.flip == 0 else self.rng.uniform(0.5, 1.0, n)

    def decide(self, n: int, ask: Callable[[Array, Array], Probes | LazyProbes]) -> Asking[Array]:
        """n yes-or-no questions (boolean (n,)), each wrong with probability at most delta / (12 dim).

        `ask(index, scales)` makes the probes. Without flips one answer decides; with them a lead of answers does.
        """
        if self.flip == 0:
            answers = yield ask(np.arange(n), np.ones(n))
            return np.asarray(answers > 0.5)
        odds = math.log((1 - self.flip) / self.flip)
        lead = math.ceil(math.log(12 * self.spec.dim / self.delta) / odds)
        tally = np.zeros(n)
        while len(index := np.flatnonzero(np.abs(tally) < lead)):
            answers = yield ask(index, self.scales(len(index)))
            tally[index] += np.where(answers > 0.5, 1, -1)
        return tally > 0

    def search(self, n: int, scale: float | None, share: float) -> Search:
        """A search for n numbers: in [0, 1], or unbounded of size `scale`; they miss with probability delta * share."""
        if self.flip:
            return Beliefs.fresh(n, self.flip, self.delta * share / max(n, 1), scale)
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
    def error(self) -> float:
        """Bound on the error of the unit estimate."""
        return float(np.linalg.norm(self.search.radius) / np.linalg.norm(self._relative()))

    def unmet(self, target: float) -> Array:
        """Which of `others` to ask next on the way to an error of `target`."""
        return self.search.unmet(target * float(np.linalg.norm(self._relative())))

    def _relative(self) -> Array:
        u = self.signs.astype(np.float64)
        u[self.others] *= self.search.center
        return u


def find_direction(labels: Labels) -> Asking[Direction]:
    """Signs from +-e_i, the largest entry by knockout: 3 d - 1 decisions at most, log2 d + 1 rounds."""
    spec = labels.spec
    d = spec.dim
    length = _unit_length(spec)
    both = np.concatenate([np.eye(d), -np.eye(d)]) * length
    positive = yield from labels.decide(2 * d, lambda index, scale: one_row(both[index] * scale[:, None]))
    up, down = positive[:d], positive[d:]
    _refuse_what_is_not_odd(up, down)
    signs = up.astype(int) - down.astype(int)
    standing = np.flatnonzero(signs)
    while len(standing) > 1:
        left, right = standing[: len(standing) // 2], standing[len(standing) // 2 : 2 * (len(standing) // 2)]

        def ask(index: Array, scale: Array, left: Array = left, right: Array = right) -> Probes:
            x = np.zeros((len(index), d))
            x[np.arange(len(index)), left[index]] = signs[left[index]]
            x[np.arange(len(index)), right[index]] = -signs[right[index]]
            return one_row(x * (scale * length)[:, None])

        wins = yield from labels.decide(len(left), ask)
        standing = np.concatenate([np.where(wins, left, right), standing[2 * len(left) :]])
    p = int(standing[0])
    others = np.setdiff1d(np.flatnonzero(signs), [p])
    return Direction(signs, p, others, labels.search(len(others), None, 0.25))


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
            "positive on one side only. The target has a constant term or is no softmax head."
        )
    if not (up | down).any():
        raise NotIdentifiable(
            "every one-token query and its negative answered 0: v = 0, or f <= 0 everywhere; the label is constant and "
            "no query shows v or W."
        )


def refine_direction(direction: Direction, target: float, labels: Labels) -> Asking[Direction]:
    """Bisect the entries of v, in lockstep, until the unit estimate is within `target`."""
    length = _unit_length(labels.spec)
    for _ in range(_ROUNDS):
        index = direction.unmet(target)
        if len(index) == 0:
            return direction
        levels = direction.search.levels()[index]
        scale = labels.scales(len(index)) * length
        chosen = direction.others[index]
        answers = yield coordinate_ratio(direction.signs, direction.largest, chosen, levels, scale)
        direction = replace(direction, search=direction.search.told(index, levels, answers > 0.5))
    raise ModelMismatch(f"the answers on one token do not settle after {_ROUNDS} rounds; they flip more than declared.")


def _unit_length(spec: OracleSpec) -> float:
    return power_of_two(min(1.0, spec.domain.norm_limit / 1.5))


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries M[rows, columns] of M = A W B' under search; `size` is their typical magnitude."""

    rows: Array
    columns: Array
    search: Search
    size: float

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


def narrow(entries: Entries, index: Array, family: EntryThresholds, labels: Labels, phase: str) -> Asking[Entries]:
    """One round: the entries at `index` are compared with their next levels."""
    levels = entries.search.levels()[index]
    product = entries.product(levels, labels.spec) * labels.scales(len(index))
    answers = yield family.above(entries.rows[index], entries.columns[index], levels, product, phase)
    return replace(entries, search=entries.search.told(index, levels, answers > 0.5))


def bracket(entries: Entries, family: EntryThresholds, labels: Labels) -> Asking[Entries]:
    """Grow every entry's bracket until it is closed."""
    for _ in range(_EXPONENTS if labels.flip == 0 else _ROUNDS):
        index = entries.loose
        if len(index) == 0:
            return entries
        entries = yield from narrow(entries, index, family, labels, "pilot")
    raise NotIdentifiable(
        f"{len(index)} of {len(entries.rows)} families of two-token sequences answer the same however far the "
        "threshold is moved: the label does not depend on the scores there. The target is no softmax head."
    )


def find_size(family: EntryThresholds, error: float, labels: Labels) -> Asking[float]:
    """Typical |M_ij| to a factor of about 2, from a few entries; 0.0 if no entry is visible.

    `error` is the error of v: a level whose logit is not well above it cannot be told from 0.
    """
    spec, d = labels.spec, len(family.v)
    n = min(d, _PILOT) if labels.flip == 0 else _NOISY_PILOT
    rows, columns = np.arange(n) % d, (np.arange(n) + np.arange(n) // d) % d
    limit = largest_product(spec.domain.norm_limit)
    smallest = 100 * max(math.sqrt(d) * (error + spec.eps) / limit, 2.0**-_EXPONENTS)

    def most_above(x: float) -> Asking[bool]:
        # Both sides every time: a sign asked at another scale may have been the error of v.
        product = np.full(2 * n, min(TYPICAL_LOGIT / x, limit)) * labels.scales(2 * n)
        levels = np.repeat([x, -x], n)
        answers = yield family.above(np.tile(rows, 2), np.tile(columns, 2), levels, product, "pilot")
        outside = (answers[:n] > 0.5) | (answers[n:] < 0.5)
        return bool(2 * np.sum(outside) > n)

    x = max(0.5 / math.sqrt(d), smallest)
    grows = yield from most_above(x)
    exponent, step = 0, 2
    while True:
        exponent += step if grows else -step
        if exponent > _EXPONENTS:
            raise NotIdentifiable(
                "two-token sequences answer the same however far the threshold is moved: the label does not depend on "
                "the scores. The target is no softmax head."
            )
        if not grows and x * 2.0**exponent < smallest:
            return 0.0
        found = yield from most_above(x * 2.0**exponent)
        if found != grows:
            break
        step *= 2
    low, high = (exponent - step, exponent) if grows else (exponent, exponent + step)
    while high - low > 1:
        middle = (low + high) // 2
        above = yield from most_above(x * 2.0**middle)
        low, high = (middle, high) if above else (low, middle)
    # The median of |M_ij| lies between; it is 0.67 standard deviations of a Gaussian entry.
    return x * 2.0 ** (low + 0.5) / 0.67
