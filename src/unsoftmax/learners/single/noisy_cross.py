"""Low rank under noise: the cross scheme with tokens at the norm limit and a rank decision that knows the noise.

Theory: docs/theory/approximate.md, "Low rank".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Allowance, Asking, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.cross import grown
from unsoftmax.learners.core.links import asking_both_signs
from unsoftmax.learners.core.noise import known_noise, noise_beside
from unsoftmax.learners.core.pair_logits import Reading, Values, read_some
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import refuse_unknown
from unsoftmax.learners.single.token_pairs import read_values, scale_of_scores, working_lengths
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.norm_budget import TokenPairs, representable, token_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.noisy_cross import (
    ColumnSpace,
    Left,
    Logits,
    norm_by_value,
    overlooked,
    reading_rows,
    row_column,
    unexplained,
)
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class _Setting:
    """What the phases share: v, noise, the turned design, and where randomness comes from."""

    spec: OracleSpec
    noise: Noise
    values: Values
    design: TokenPairs
    rng: np.random.Generator

    def read(self, X1: Array, X2: Array, phase: str) -> Asking[list[Logits]]:
        """Logits of every x1 with every x2, by x2."""
        rows, columns = np.indices((len(X2), len(X1)))[::-1]
        return (yield from self.read_some(TokenPairs(X1, X2), rows, columns, phase))

    def read_some(self, pairs: TokenPairs, rows: Array, columns: Array, phase: str) -> Asking[list[Logits]]:
        """Logits of the pairs at `rows`, `columns` (n, m); every line has one x2."""
        plain = np.ones((rows.size, 2), dtype=np.int64)
        y = yield pairs.at(rows.ravel(), columns.ravel(), np.ones(rows.size), plain, phase)
        reading = yield from read_some(pairs, rows, columns, y, self.values, self.spec, self.noise)
        return [_logits(reading, i, pairs.X1[rows[i]], pairs.X2[columns[i, 0]]) for i in range(len(rows))]

    def rows(self, space: ColumnSpace) -> Array:
        """k + 1 tokens that read columns inside the span."""
        n = self.values.v / self.values.norm
        length = float(np.linalg.norm(self.design.X1[0]))
        cosine = float(self.design.X1[0] @ n) / length
        x1 = reading_rows(space.basis, n, self.design.X2[space.rank :], cosine, length, self.rng)
        return representable(x1, self.spec.dtype)


def _logits(reading: Reading, i: int, X1: Array, x2: Array) -> Logits:
    """Line i of a reading; an error dv of v moves its logits by (P x1 + Q x2).dv."""
    P, Q = ((low[i] + high[i]) / 2 for low, high in (reading.P, reading.Q))
    return Logits(reading.T[i], reading.noise[i], P[:, None] * X1 + np.outer(Q, x2))


def noisy_cross(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """W of unknown (or given) rank r from r(2d - r) noisy pair queries after d for v."""
    program = _noisy_cross(spec, np.random.default_rng(seed), rank)
    return asking_both_signs(program) if spec.link == "log" else program


def _noisy_cross(spec: OracleSpec, rng: np.random.Generator, rank: int | None) -> Program:
    d = spec.dim
    noise, length, farthest = yield from known_noise(spec, rng)
    values = yield from read_values(spec, noise, length)
    lengths = working_lengths(spec, noise, values, farthest)
    noise = yield from noise_beside(values, lengths.limit, noise, spec, rng)
    product = yield from scale_of_scores(values, spec, noise, lengths, rng)
    # Turned tokens: no column of W is special, whatever its zeros.
    design = token_pairs(values.v, *lengths(product), spec.dtype, reach=lengths.reach, rng=rng)
    setting = _Setting(spec, noise, values, design, rng)
    scheme = _Noisy(setting)
    space, left = yield from grown(scheme, ColumnSpace.none(d), d, rank)
    if rank is not None and scheme.leaves(space, left):
        raise ModelMismatch(
            f"`rank` was given as {rank} and fresh scores leave the span of {rank} columns by more than their noise "
            "explains: W has a higher rank. Pass rank=None to discover it."
        )
    return (yield from _assembled(space, setting, rank, left))


@dataclass(frozen=True, eq=False)
class _Noisy:
    """The design's columns, tested by k + 1 logits each, and if the first is explained more columns."""

    setting: _Setting
    tests: tuple[int, ...] = (1, SINGLE.noisy_confirmations - 1)

    def rank(self, span: ColumnSpace) -> int:
        return span.rank

    def look(self, span: ColumnSpace, count: int, before: int) -> Asking[list[Left]]:
        """What the span leaves of columns, each read by its own tokens: what is orthogonal to the probe of one would
        else be so to all."""
        setting, k = self.setting, span.rank
        X1 = np.concatenate([setting.rows(span) for _ in range(count)])
        X2 = setting.design.X2[k + (before + np.arange(count)) % (setting.spec.dim - k)]
        rows = np.arange(count * (k + 1)).reshape(count, k + 1)
        columns = np.repeat(np.arange(count)[:, None], k + 1, axis=1)
        read = yield from setting.read_some(TokenPairs(X1, X2), rows, columns, "pilot")
        radius = setting.values.radius
        return [unexplained(span, X1[rows[i]], X2[i], logits, radius) for i, logits in enumerate(read)]

    def leaves(self, span: ColumnSpace, left: list[Left]) -> bool:
        return any(part.size > SINGLE.significant * part.deviation for part in left)

    def column(self, span: ColumnSpace, left: list[Left]) -> Asking[ColumnSpace]:
        X1, x2 = self.setting.design.X1, self.setting.design.X2[span.rank]
        (logits,) = yield from self.setting.read(X1, x2[None], "main")
        return span.with_column(X1, x2, logits)


def _assembled(space: ColumnSpace, setting: _Setting, rank: int | None, left: list[Left]) -> Program:
    """The remaining columns from k logits each, then W = Q M X2^-T."""
    k, d, X2 = space.rank, setting.spec.dim, setting.design.X2
    errors = [math.sqrt(d) * space.deviation] * k
    by_value = list(space.by_value)
    Q = space.basis
    M = np.zeros((k, d))
    M[:, :k] = Q.T @ space.U
    if 0 < k < d:
        X1 = setting.rows(space)[:k]
        for j, logits in enumerate((yield from setting.read(X1, X2[k:], "main")), k):
            column = row_column(space, X1, X2[j], logits)
            M[:, j] = column.m
            errors.append(column.error)
            by_value.append(column.by_value)
    right = np.linalg.solve(X2, M.T)
    hidden = overlooked(space, X2[:k], left, setting.rng) if left else 0.0
    bound = (
        CORE.deviations_of_a_radius * float(np.linalg.norm(errors)) + norm_by_value(by_value) * setting.values.radius
    )
    bound *= float(np.linalg.norm(np.linalg.inv(X2), 2))
    precision = Precision(bound + hidden, setting.values.radius, setting.noise, "measured")
    given = f"at this noise, if the rank is {k} and errors of different answers are independent"
    claims = (
        Claim("error of W", precision.W, None, "measured", statement=f"||W^ - W||_F {given}"),
        *precision.claims()[1:],
    )
    found = f"rank found: {k}" if rank is None else f"rank {k} as given"
    note = f"{found}; directions of W below about {hidden:.1g} cannot be told from the answers' noise."
    head = SingleHead(Q @ right.T, setting.values.v) if k == d else LowRankHead(Q, right, setting.values.v)
    refuse_unknown(head, precision, setting.spec)
    return Outcome(head, (note,), claims, Allowance(precision=precision))
