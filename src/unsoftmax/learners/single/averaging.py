"""Noise that differs from sequence to sequence, averaged: K blocks of d + d^2 queries, no two sequences alike.

Every block turns its tokens at random (a dense design), so that rounding errors differ too, and a ledger, which answers
the same sequence with the same number, does not defeat the averaging. Half of the sequences are negated: a constant in
the answers is found and removed. A few blocks show how large v, W and the noise are; with them the number of blocks is
planned, the plan is held against the budget, and asked in a few rounds that grow with what is known.

Theory: docs/theory/approximate.md, "Noise that is not told", stochastic noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Allowance, Asking, Outcome, Precision
from unsoftmax.learners.core.noise import FREEDOM, common_step, sigmas
from unsoftmax.learners.core.pair_logits import Values
from unsoftmax.learners.single.averaging_cost import affordable, least_blocks
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.token_pairs import distinguishable
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.probes.base import Array, one_row
from unsoftmax.probes.norm_budget import representable, signed_pairs, turned_pairs
from unsoftmax.solvers.blocks import Blocks, Fit, Singles, Spread, deviation_at_most, fit, saturation, spread
from unsoftmax.spec import OracleSpec

SUPPOSING = ", if errors of different sequences are independent but for a constant and one with the answer's sign"


@dataclass
class Averaging:
    """State of one averaged run: answers so far, and where the next ones are billed.

    `planned` blocks are billed as "values" and "main", what the target turns out to need beyond them as "repair".
    `prior` is the deviation of an answer by the `noise` declared or measured before, and is worth FREEDOM residuals;
    `rough` adds what one-token answers say; `step` is the one that answers are rounded to, if it is large. `most`
    queries are what the forecast allowed, and |v| >= `margin` what was declared, None where nothing was.
    """

    spec: OracleSpec
    rng: np.random.Generator
    accuracy: float
    planned: int
    length: float
    noise: Noise
    most: int | None = None
    margin: float | None = None
    shorter: float = 0.0
    prior: float = 0.0
    rough: float = 0.0
    step: float = 0.0
    singles: list[Singles] = field(default_factory=list)
    batches: list[Blocks] = field(default_factory=list)

    def learn(self) -> Asking[Outcome]:
        """A first look, then as many blocks as it says are needed; solve; state what is left."""
        self.shorter = self.length
        start = max(least_blocks(self.spec.dim), self.planned // SINGLE.look_share)
        values = yield from self._first_values(start)
        yield from self._settle(values, start)
        found = fit(self._values, self.batches[-1:], values.v, np.zeros((self.spec.dim, self.spec.dim)))
        looked = self.spent
        for _ in range(SINGLE.stages):
            self.step = common_step(max(self.batches, key=lambda batch: batch.y.size).y)
            found = fit(self._values, self.batches, found.v, found.W)
            wrong = spread(self._values, self.batches, found.v, found.W)
            deviation = self._deviation(found)
            bound = wrong.W * deviation * math.sqrt(1 + self.spent * self._lean**2)
            if bound <= self.accuracy and min(self.blocks, self.value_blocks) >= self.planned:
                break
            stage, sure = self._stage(self._plan(found, wrong), bound)
            self._refuse_beyond(sure * theory.approximate_queries(self.spec.dim))
            yield from self._ask(stage, sure, found.v)
        if not bound <= self.accuracy:
            raise ModelMismatch(
                f"after {self.blocks} blocks the error of W is bounded by {bound:.2g} and falls more slowly than "
                f"independent errors would let it: accuracy={self.accuracy:g} is out of reach by averaging."
            )
        # Single answers still have the errors that all share.
        noise = Noise(3 * deviation + abs(found.constant) + abs(found.away), 4 * self.spec.eps, measured=True)
        precision = Precision(bound, wrong.v * deviation, noise, "measured", None, SUPPOSING)
        notes, allows = self._notes(found, deviation, looked), Allowance(precision=precision)
        return Outcome(Head(found.W, found.v), notes, precision.claims(), allows)

    @property
    def blocks(self) -> int:
        """Blocks of pairs so far."""
        return sum(len(batch.y) for batch in self.batches)

    @property
    def value_blocks(self) -> int:
        """Blocks of one-token queries so far."""
        return sum(len(part.y) for part in self.singles) // self.spec.dim

    @property
    def spent(self) -> int:
        """Queries so far."""
        return (self.value_blocks + self.blocks * self.spec.dim) * self.spec.dim

    @property
    def _values(self) -> Singles:
        parts = [(part.X, part.sign, part.y) for part in self.singles]
        return Singles(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _first_values(self, count: int) -> Asking[Values]:
        """v from one-token queries, as many as it takes to tell it from 0."""
        d = self.spec.dim
        yield from self._ask_values(count, count)
        while True:
            part = self._values
            rows = np.column_stack([part.X, part.sign])
            solution = np.linalg.lstsq(rows, part.y, rcond=None)[0]
            freedom = len(rows) - d - 1
            self.prior = (self.noise.absolute + self.noise.relative * float(np.abs(part.y).max())) / sigmas(d)
            squares = FREEDOM * self.prior**2 + float(((part.y - rows @ solution) ** 2).sum())
            deviation = deviation_at_most(math.sqrt(squares / (FREEDOM + freedom)), FREEDOM + freedom)
            radius = (1 + 3 / math.sqrt(d)) * math.sqrt(d * d / len(rows)) * deviation / self.length
            values = Values(solution[:d], radius)
            if self.margin is not None and values.norm + radius < self.margin:
                raise ModelMismatch(
                    f"|v| is at most {values.norm + radius:.2g} and margin={self.margin:g} was declared: lower it; "
                    "where v = 0 no query shows W."
                )
            if values.norm > 4 * radius or len(rows) > SINGLE.sought * d * self.planned:
                self.rough, self.step = deviation, common_step(part.y)
                return distinguishable(values, self.length)
            count = 3 * len(rows) // d
            self._refuse_beyond(count * d)
            yield from self._ask_values(count, count)

    def _settle(self, values: Values, start: int) -> Asking[None]:
        """Shorten x2 until the logits are not saturated on the whole; costs nothing where they are not."""
        d = self.spec.dim
        share = self.rough / (2 * self.length * values.norm / math.sqrt(3))
        # The noise of alpha must neither hide its spread, of which a block's mean is off by this, nor one logit.
        count = max(start, math.ceil((share**2 * math.sqrt(2) / d / 0.02) ** 2), math.ceil((4 * share / 0.5) ** 2))
        for _ in range(60):
            self._refuse_beyond(count * d * d)
            yield from self._ask_blocks(count, values.v, count)
            if saturation(self.batches[-1:], values.v, self.rough) <= SINGLE.saturated:
                return
            self.shorter /= 4

    def _plan(self, found: Fit, wrong: Spread) -> int:
        """Blocks still to be asked, at the length of x2 that needs fewest; sets that length."""
        d = self.spec.dim
        rng = np.random.default_rng(0)
        best = math.inf
        lengths = sorted({min(self.length, self.shorter * 2.0 ** (k / 2)) for k in range(-2, 6)}, reverse=True)
        for length in lengths:
            count = max(3, math.ceil(SINGLE.tried / (d * d + d)))
            X1, X2 = turned_pairs(found.v, self.length, length, self.spec.dtype, count, rng, wide=self.step > 0)
            K = len(X1)
            one = self.length * _orthogonal(K, d, rng)
            signs = rng.choice([-1.0, 1.0], (2, K, d, d))
            batch = Blocks(X1, X2, signs[0], np.ones((K, d, d)))
            values = Singles(one, signs[1].ravel()[: len(one)], np.ones(len(one)))
            tried = spread(values, [batch], found.v, found.W)
            if math.sqrt(K) * tried.W < best:
                best, self.shorter = math.sqrt(K) * tried.W, length
        # More answers will also tell the deviation better: it is planned with as it will then be known.
        wanted, held = self._needed(found, best), (best / wrong.W) ** 2
        total = self.blocks + max(wanted - held, 0.0)
        more = max(affordable(total, d, self.accuracy), self.planned) - self.blocks
        return max(more, 1 + self.blocks // 50)

    def _refuse_beyond(self, more: int) -> None:
        """Raise if so many more queries exceed what the forecast allowed."""
        total = self.spent + more
        if self.most is not None and total > self.most:
            raise ModelMismatch(
                f"accuracy={self.accuracy:g} takes {total} queries here, and {self.most} would do for errors of the "
                "declared tolerance, ||W||_F <= W_bound and |v| >= margin: one of the three does not hold. After "
                f"{self.spent} queries nothing more was asked."
            )

    def _needed(self, found: Fit, best: float) -> float:
        """Blocks in all, if one block leaves `best` per deviation: a fixed point, since these tell the deviation."""
        blocks = float(self.blocks)
        for _ in range(8):
            deviation = self._deviation(found, blocks * theory.approximate_queries(self.spec.dim))
            blocks = (SINGLE.ahead * best * deviation / self.accuracy) ** 2
        # With the part that does not fall: best^2 deviation^2 (1 / K + lean^2 per block) is what must be reached.
        left = 1 - blocks * theory.approximate_queries(self.spec.dim) * self._lean**2
        if left < 0.1:
            raise NotIdentifiable(
                f"accuracy={self.accuracy:g} is out of reach: answers are rounded to multiples of {self.step:.2g}, and "
                "tokens this short do not spread them over enough of these to average the rounding away."
            )
        return blocks / left

    @property
    def _lean(self) -> float:
        """Part of a rounding error that all answers share: on a line few steps are met, in space all phases of them."""
        if self.step == 0:
            return 0.0
        steps = max(np.ptp(batch.y) for batch in self.batches) / self.step
        return float(0.3 / max(steps, 1.0) ** min(self.spec.dim, 2))

    def _deviation(self, found: Fit, freedom: float | None = None) -> float:
        """Deviation of an answer, from everything that was seen more often than needed, and not likely below it.

        `freedom`: as it would be told by so many answers.
        """
        squares = FREEDOM * self.prior**2 + found.squares
        estimate = math.sqrt(squares / (FREEDOM + found.freedom))
        return deviation_at_most(estimate, FREEDOM + max(found.freedom, freedom or 0.0))

    def _notes(self, found: Fit, deviation: float, looked: int) -> tuple[str, ...]:
        notes = [
            f"{looked} queries were a first look; {self.blocks} blocks of {theory.approximate_queries(self.spec.dim)} "
            f"were then planned and averaged. A single answer deviates by at most {deviation:.2g}."
        ]
        seen = 4 * deviation / math.sqrt(self.spent)
        if abs(found.constant) > seen:
            notes.append(f"a constant of {found.constant:.3g} in all answers was found and removed.")
        if abs(found.away) > 3 * seen:
            where = "away from" if found.away > 0 else "towards"
            notes.append(f"all answers are {abs(found.away):.3g} too far {where} 0, which was found and removed.")
        return tuple(notes)

    def _stage(self, more: int, bound: float) -> tuple[int, int]:
        """How many of the planned blocks to ask now, and how many are sure to be needed, if more than that.

        Logits that may be off by u say too much or too little of the information in an answer by exp(u) or so. A plan
        made in their light is asked to that part only, or as much as doubles what was seen, and made again.
        """
        if more <= self.blocks:
            return more, more
        off = bound * self.length * self.shorter
        stage = max(self.blocks, int(more * math.exp(-off)))
        return stage, more if off < SINGLE.rough else stage

    def _ask(self, count: int, ahead: int, v: Array) -> Asking[None]:
        """`count` blocks, values and pairs; `ahead` blocks are what is still to come, these included."""
        d = self.spec.dim
        missing = max(0, self.blocks + count - self.value_blocks)
        yield from self._ask_values(missing, missing, ahead * d * d)
        yield from self._ask_blocks(count, v, ahead)

    def _ask_values(self, count: int, ahead: int, more: int = 0) -> Asking[None]:
        """Blocks of d orthogonal one-row queries, half of them negated."""
        d = self.spec.dim
        for size, phase in self._phases(self.value_blocks, count, "values"):
            x = representable(_orthogonal(size, d, self.rng) * self.length, self.spec.dtype)
            sign = self.rng.choice([-1.0, 1.0], len(x))
            y = yield replace(one_row(x * sign[:, None], phase=phase), ahead=ahead * d + more)
            self.singles.append(Singles(x, sign, sign * y))

    def _ask_blocks(self, count: int, v: Array, ahead: int) -> Asking[None]:
        d = self.spec.dim
        for size, phase in self._phases(self.blocks, count, "main"):
            X1, X2 = turned_pairs(v, self.length, self.shorter, self.spec.dtype, size, self.rng, wide=self.step > 0)
            sign = self.rng.choice([-1.0, 1.0], (size, d, d))
            y = yield replace(signed_pairs(X1, X2, sign, phase), ahead=ahead * d * d)
            self.batches.append(Blocks(X1, X2, sign, sign * y.reshape(size, d, d)))

    def _phases(self, asked: int, count: int, name: str) -> list[tuple[int, str]]:
        """`count` blocks as a part that was planned and one that was not."""
        inside = max(0, min(count, self.planned - asked))
        return [(size, phase) for size, phase in ((inside, name), (count - inside, "repair")) if size > 0]


def _orthogonal(count: int, d: int, rng: np.random.Generator) -> Array:
    """`count` random orthogonal bases, (count d, d), of slightly different lengths, on a line of different ones."""
    Q = np.linalg.qr(rng.standard_normal((count, d, d)))[0]
    return np.asarray((Q * rng.uniform(0.97 if d > 1 else 0.5, 1.0, (count, 1, 1))).reshape(-1, d))
