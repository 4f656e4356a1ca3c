"""Low rank under noise: the cross scheme with tokens at the norm limit and a rank decision that knows the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.inversion import Noise
from unsoftmax.learners.base import Asking, Outcome, Precision, Program
from unsoftmax.learners.noise import known_noise
from unsoftmax.learners.pair_logits import Reading, Values, read_pairs
from unsoftmax.learners.token_pairs import read_values, scale_of_scores, working_lengths
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.norm_budget import TokenPairs, representable, token_pairs
from unsoftmax.result import Claim
from unsoftmax.solvers.noisy_cross import ColumnSpace, column, reading_rows, row_column, unexplained
from unsoftmax.spec import OracleSpec

_CONFIRMATIONS = 6
_SIGNIFICANT = 4.0
"""Deviations by which a column must leave the span of those before to count as new."""

_SURE = 3.0
_GAIN = 6.0
"""Of a logit of 1.4 in its share, as large as logits usually are; 4 at 0."""


@dataclass(frozen=True, eq=False)
class _Setting:
    """What the phases share: v, noise, the turned design, and where randomness comes from."""

    spec: OracleSpec
    noise: Noise
    values: Values
    design: TokenPairs
    rng: np.random.Generator

    def read(self, X1: Array, X2: Array, phase: str) -> Asking[Reading]:
        pairs = TokenPairs(X1, X2)
        y = yield pairs.columns(0, len(X2), phase)
        return (yield from read_pairs(pairs, pairs.matrix(y), self.values, self.spec, self.noise))

    def hidden(self) -> float:
        """Size of a direction of W that a random pair shows by no more than the noise."""
        length, shorter = (float(np.linalg.norm(X[0])) for X in (self.design.X1, self.design.X2))
        # Behind a link the answers at the ends of their range are the noisiest.
        ends = np.array([-1.0, 0.0, 1.0]) * float(np.abs(self.design.X1 @ self.values.v).max())
        noise = float(self.noise.radius(ends, length * self.values.norm).max())
        return _SIGNIFICANT * self.spec.dim * _GAIN * noise / (self.values.norm * length**2 * shorter)

    def rows(self, space: ColumnSpace) -> Array:
        """k + 1 tokens that read columns inside the span."""
        n = self.values.v / self.values.norm
        length = float(np.linalg.norm(self.design.X1[0]))
        cosine = float(self.design.X1[0] @ n) / length
        x1 = reading_rows(space.basis, n, self.design.X2[space.rank :], cosine, length, self.rng)
        return representable(x1, self.spec.dtype)


def noisy_cross(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """W of unknown (or given) rank r from r(2d - r) noisy pair queries after d for v."""
    d, rng = spec.dim, np.random.default_rng(seed)
    noise, length, farthest = yield from known_noise(spec, rng)
    values = yield from read_values(spec, noise, length)
    lengths = working_lengths(spec, noise, values, farthest)
    product = yield from scale_of_scores(values, spec, noise, lengths, rng)
    # Turned tokens: no column of W is special, whatever its zeros.
    design = token_pairs(values.v, *lengths(product), spec.dtype, reach=lengths.reach, rng=rng)
    setting = _Setting(spec, noise, values, design, rng)
    space = ColumnSpace(np.zeros((d, 0)), 0.0)
    most = d if rank is None else rank
    while space.rank < most and (rank is not None or (yield from _leaves(space, setting, d - space.rank))):
        space = yield from _with_column(space, setting)
    if rank is not None and rank < d and (yield from _leaves(space, setting, d - rank)):
        raise ModelMismatch(
            f"`rank` was given as {rank} and fresh scores leave the span of {rank} columns by more than their noise "
            "explains: W has a higher rank. Pass rank=None to discover it."
        )
    return (yield from _assembled(space, setting, rank))


def _leaves(space: ColumnSpace, setting: _Setting, left: int) -> Asking[bool]:
    """Whether W has directions outside the span: k + 1 logits of a column the span should explain, then of more."""
    X2 = setting.design.X2[space.rank :]
    for start, stop in ((0, 1), (1, min(_CONFIRMATIONS, left))):
        if stop <= start:
            continue
        X1 = setting.rows(space)
        reading = yield from setting.read(X1, X2[start:stop], "pilot")
        for j in range(stop - start):
            radius = _deviation(reading)[:, j]
            if unexplained(space, X1, X2[start + j], reading.T[:, j], radius) > _SIGNIFICANT:
                return True
    return False


def _deviation(reading: Reading) -> Array:
    """Size of the logits' errors: their own answers', and about as much again from v."""
    return math.sqrt(2) * reading.noise


def _with_column(space: ColumnSpace, setting: _Setting) -> Asking[ColumnSpace]:
    k = space.rank
    x2 = setting.design.X2[k]
    reading = yield from setting.read(setting.design.X1, x2[None], "main")
    u, fresh = column(setting.design.X1, x2, reading.T[:, 0], _deviation(reading)[:, 0])
    return ColumnSpace(np.column_stack([space.U, u]), math.sqrt((k * space.deviation**2 + fresh**2) / (k + 1)))


def _assembled(space: ColumnSpace, setting: _Setting, rank: int | None) -> Program:
    """The remaining columns from k logits each, then W = Q M X2^-T."""
    k, d, X2 = space.rank, setting.spec.dim, setting.design.X2
    errors = [math.sqrt(d) * space.deviation] * k
    Q = space.basis
    M = np.zeros((k, d))
    M[:, :k] = Q.T @ space.U
    if 0 < k < d:
        X1 = setting.rows(space)[:k]
        reading = yield from setting.read(X1, X2[k:], "main")
        for j in range(k, d):
            M[:, j], error = row_column(space, X1, X2[j], reading.T[:, j - k], _deviation(reading)[:, j - k])
            errors.append(error)
    right = np.linalg.solve(X2, M.T)
    hidden = setting.hidden()
    bound = _SURE * float(np.linalg.norm(np.linalg.inv(X2), 2)) * float(np.linalg.norm(errors))
    precision = Precision(
        math.hypot(bound, math.sqrt(d - k) * hidden), setting.values.radius, setting.noise, "measured"
    )
    given = f"at this noise, if the rank is {k} and errors of different answers are independent"
    claims = (
        Claim("error of W", precision.W, None, "measured", statement=f"||W^ - W||_F {given}"),
        *precision.claims()[1:],
    )
    found = f"rank found: {k}" if rank is None else f"rank {k} as given"
    note = f"{found}; directions of W below about {hidden:.1g} cannot be told from the answers' noise."
    head = SingleHead(Q @ right.T, setting.values.v) if k == d else LowRankHead(Q, right, setting.values.v)
    return Outcome(head, (note,), claims, precision)
