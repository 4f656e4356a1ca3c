"""Reading gaps G_ij = S_ij - S_jj between tokens: pairs, repetition, and chains through a token already known.

A sequence ending in j answers a mean of values weighted by exp(score). With key i beside a base of known tokens of
total weight exp(level) and mean value m, the answer is m + sigma(G_ij - level) (value_i - m): one logit. The base is j
itself, j repeated, or j with a helper k whose gap is known: that reads S_ij - S_kj although both may be far from S_jj.

Theory: docs/theory/token-access.md, "Token access", strong heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import saturating_logits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.tokens.constants import TOKEN_HEAD
from unsoftmax.probes.base import Array
from unsoftmax.probes.tokens import NO_HELPER, Design

UNREAD = 1e9
"""Defined: radius of an entry that was asked and could not be read."""


@dataclass(frozen=True, eq=False)
class Reader:
    """What every reading needs: ids of the tokens (n,), their values as keys and as last token, |answer - f| <= noise,
    rounding unit of scores, how many copies of a token a sequence may hold (1: none), whether a third is allowed;
    rounding error that is part of noise because the answers show few decimals."""

    ids: Array
    values: Array
    last: Array
    noise: float
    eps: float
    copies: int
    chained: bool
    rounded: float = 0.0

    @property
    def spread(self) -> float:
        """Range of the values."""
        return float(np.ptp(self.values))

    @property
    def goal(self) -> float:
        """Radius with which a reading is content."""
        return 2 * TOKEN_HEAD.digits_lost * self.noise / self.spread


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps and their error radii, (n,)."""

    level: Array
    radius: Array


@dataclass(frozen=True, eq=False)
class Ladder:
    """Helpers: tokens (m,), their gaps and radii (m, n) or (m, 1) in the column of each entry."""

    tokens: Array
    level: Array
    radius: Array

    @classmethod
    def empty(cls) -> Ladder:
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, 1)), np.zeros((0, 1)))


@dataclass(frozen=True, eq=False)
class Base:
    """What stands beside the key: log weight, mean value, error of its log weight, helper's lever on the mean; and
    the radius that is expected of the reading. All (n,)."""

    level: Array
    mean: Array
    inherited: Array
    lever: Array
    expected: Array


def read(
    reader: Reader, keys: Array, queries: Array, expected: Array, ladder: Ladder, phase: str, known: Gaps | None = None
) -> Asking[Gaps]:
    """Gaps (n,) of the entries (keys, queries); those in `known` are asked again only where that should help."""
    design, base = choose(reader, keys, queries, expected, ladder)
    if known is None:
        asked = np.arange(len(keys))
        level, radius = expected.copy(), np.full(len(keys), UNREAD)
    else:
        asked = np.flatnonzero(base.expected < np.minimum(known.radius, TOKEN_HEAD.worthless_radius) / 4)
        level, radius = known.level.copy(), known.radius.copy()
    for rows in (asked[design.helper[asked] == NO_HELPER], asked[design.helper[asked] != NO_HELPER]):
        if len(rows) == 0:
            continue
        y = yield design.probes(reader.ids, rows, phase)
        seen = _invert(reader, y, design, base, rows)
        better = (seen.radius < radius[rows]) | (radius[rows] >= UNREAD)
        level[rows[better]], radius[rows[better]] = seen.level[better], seen.radius[better]
    return Gaps(level, radius)


def mend(reader: Reader, keys: Array, queries: Array, known: Gaps, ladder: Ladder) -> Asking[Gaps]:
    """Ask the poorly read entries again beside a better base, as phase "repair", while that promises anything."""
    best = known
    for _ in range(TOKEN_HEAD.passes):
        rows = np.flatnonzero(best.radius > reader.goal)
        if len(rows) == 0:
            break
        part = Gaps(best.level[rows], best.radius[rows])
        beyond = np.where(part.radius >= UNREAD, TOKEN_HEAD.worthless_radius * np.sign(part.level), 0.0)
        columns = rows if ladder.level.shape[1] > 1 else slice(None)
        rungs = Ladder(ladder.tokens, ladder.level[:, columns], ladder.radius[:, columns])
        new = yield from read(reader, keys[rows], queries[rows], part.level + beyond, rungs, "repair", part)
        if (new.radius == part.radius).all() and (new.level == part.level).all():
            break
        level, radius = best.level.copy(), best.radius.copy()
        level[rows], radius[rows] = new.level, new.radius
        best = Gaps(level, radius)
    return best


def choose(reader: Reader, keys: Array, queries: Array, expected: Array, ladder: Ladder) -> tuple[Design, Base]:
    """For each entry the base that promises the smallest radius if the gap is as expected."""
    n, L = len(keys), reader.copies
    design = Design(keys, queries, np.full(n, NO_HELPER), *(np.ones(n, dtype=np.int64) for _ in range(3)))
    base = Base(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, np.inf))
    everywhere = np.arange(n)
    for a, b in ((1, 1), (1, L), (L, 1)) if L > 1 else ((1, 1),):
        _offer(reader, design, base, everywhere, expected, (a, b, 0), None)
    if reader.chained:
        # Pairs that promise a good reading are left alone: helpers cost tokens.
        wanting = np.flatnonzero(base.expected > reader.goal / 64)
        for m in range(len(ladder.tokens) if len(wanting) else 0):
            level, radius = (np.broadcast_to(x[m], n)[wanting] for x in (ladder.level, ladder.radius))
            for copies in ((1, 1, 1), (1, 1, L), (L, 1, 1)) if L > 1 else ((1, 1, 1),):
                _offer(reader, design, base, wanting, expected, copies, (int(ladder.tokens[m]), level, radius))
    return design, base


def _offer(
    reader: Reader,
    design: Design,
    base: Base,
    rows: Array,
    expected: Array,
    copies: tuple[int, int, int],
    helper: tuple[int, Array, Array] | None,
) -> None:
    """Take this base where it promises more than the best so far."""
    a, b, h = copies
    value, own = reader.values[design.key[rows]], reader.last[design.query[rows]]
    level, mean = np.full(len(rows), np.log(b)), own
    inherited, lever = np.zeros(len(rows)), np.zeros(len(rows))
    usable = np.ones(len(rows), dtype=bool)
    if helper is not None:
        token, gap, radius = helper
        usable = (radius < UNREAD) & (design.key[rows] != token) & (design.query[rows] != token)
        weight = gap + np.log(h)
        level = np.logaddexp(level, weight)
        share = np.exp(weight - level)
        mean = own + share * (reader.values[token] - own)
        inherited = share * radius
        lever = np.abs(reader.values[token] - mean)
    t = expected[rows] + np.log(a) - level
    with np.errstate(divide="ignore", over="ignore"):
        gain = (2 + 2 * np.cosh(np.clip(t, -600, 600))) / np.abs(value - mean)
        promised = _radius(reader, gain, inherited, lever, np.abs(value - mean), t, level)
    taken = usable & (promised < base.expected[rows] / (1 if helper is None else 2))
    where = rows[taken]
    design.key_copies[where], design.query_copies[where], design.helper_copies[where] = a, b, max(h, 1)
    design.helper[where] = NO_HELPER if helper is None else helper[0]
    for name, new in (("level", level), ("mean", mean), ("inherited", inherited), ("lever", lever)):
        getattr(base, name)[where] = new[taken]
    base.expected[where] = promised[taken]


def _radius(
    reader: Reader, gain: Array, inherited: Array, lever: Array, difference: Array, t: Array, level: Array
) -> Array:
    """Error of a reading: answer and values within noise, the base's own error (first order), rounding of the scores.

    With x = noise / (low high) the logit of a share between low and 1 - high moves by at most -log(1 - x).
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        pulled = lever * (1 + np.exp(-np.clip(t, -600, 600))) / difference
        scores = 4 * reader.eps * (4 + np.abs(t) + np.abs(level))
        share = 2 * reader.noise * gain
        answer = np.where(share < 1, -np.log1p(-np.minimum(share, 1)), UNREAD)
        radius = answer + inherited * (1 + np.where(lever > 0, pulled, 0.0)) + scores
    return np.where(np.isfinite(radius), np.minimum(radius, UNREAD), UNREAD)


def _invert(reader: Reader, y: Array, design: Design, base: Base, rows: Array) -> Gaps:
    level, mean = base.level[rows], base.mean[rows]
    difference = reader.values[design.key[rows]] - mean
    _inside(reader, y, mean, difference, design, base, rows)
    seen = saturating_logits(y, difference, mean, reader.noise)
    radius = _radius(reader, seen.gain, base.inherited[rows], base.lever[rows], np.abs(difference), seen.t, level)
    return Gaps(seen.t + level - np.log(design.key_copies[rows]), radius)


def _inside(reader: Reader, y: Array, mean: Array, difference: Array, design: Design, base: Base, rows: Array) -> None:
    """A mean of values lies between them; an answer that clearly does not is evidence against the whole class."""
    outside = np.maximum(np.minimum(mean, mean + difference) - y, y - np.maximum(mean, mean + difference))
    helper = design.helper[rows]
    # Beside a helper whose gap is hardly known the mean is hardly known either.
    reach = np.abs(reader.values[helper] - reader.last[design.query[rows]])
    outside -= np.where(helper == NO_HELPER, 0.0, np.minimum(1.0, 4 * base.inherited[rows]) * reach)
    worst = int(np.argmax(outside))
    if outside[worst] > 64 * reader.noise + 1e-4 * reader.spread:
        k = rows[worst]
        raise ModelMismatch(
            f"the sequence with key {reader.ids[design.key[k]]} and last token {reader.ids[design.query[k]]} answered "
            f"{y[worst]:.6g}, outside the interval between {mean[worst]:.6g} and {(mean + difference)[worst]:.6g} that "
            "attention over token values spans; the target is no single head over tokens (a residual, a network "
            "behind it or positions would do this)."
        )
