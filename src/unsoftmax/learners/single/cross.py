"""The cross scheme as a program: columns until nothing new shows, then the rows of what is left (section 5, exact).

Theory: docs/theory/low-rank.md, "Chosen probes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise, logits
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome, Precision, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.cross import grown
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import read_logits, read_values, size_of_scores, unit_length
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.pairs import Pairs, paired
from unsoftmax.probes.rows import Spread, Units, spread
from unsoftmax.probes.scales import held, lengths_for, on_grid
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.cross import SPURIOUS, Columns, assemble, factors, mixing, negligible, next_column, outside
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class _Setting:
    """What the phases share: v, lengths of a and b, and where randomness comes from."""

    spec: OracleSpec
    v: Array
    size: float
    length_a: float
    length_b: float
    rng: np.random.Generator

    def grid(self, x: Array) -> Array:
        return on_grid(x, self.length_a + self.length_b, self.spec.dtype)


def cross(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """Recover W of unknown (or given) rank r from exactly r(2d - r) pair queries after d for v."""
    d, rng = spec.dim, np.random.default_rng(seed)
    v = yield from read_values(spec)
    size = yield from size_of_scores(v, spec, rng)
    # Half of each vector's length carries the generic part of a and b: see `spread` and `next_column`.
    setting = _Setting(spec, v, size, *lengths_for(2 * SINGLE.typical_logit * d / size, spec.domain), rng)

    scheme = _Exact(
        setting,
        (SINGLE.candidates, SINGLE.confirmations) if rank is None else (SINGLE.confirmations,),
        CORE.roundings_granted * spec.eps,
    )
    columns, fresh = yield from grown(scheme, Columns.none(rng.permutation(d)), d, rank)
    noise, left = scheme.noise, max((t for t, _ in fresh), default=0.0)
    if rank is not None and scheme.leaves(columns, fresh):
        raise ModelMismatch(
            f"`rank` was given as {rank} and scores outside the span of {rank} columns reach {left:.2g}, where noise "
            f"explains {negligible(noise, rank):.2g}: W has a higher rank. Pass rank=None to discover it."
        )
    if columns.rank == 0:
        empty = np.zeros((d, 0))
        hidden = 4 * d * negligible(noise, 0) / (setting.length_a * setting.length_b)
        if spec.domain.max_norm is not None and hidden > SINGLE.nothing:
            raise NotIdentifiable(
                f"with tokens of norm at most {spec.domain.max_norm:g} no score is visible: of W only "
                f"||W|| < {hidden:.1g} is known. Raise max_norm."
            )
        note = f"rank found: 0; no score is visible: ||W|| is 0, or below {hidden:.1g}, which the tokens cannot show."
        return Outcome(LowRankHead(empty, empty, v), (note,))
    M = yield from _rows(columns, setting)
    return _outcome(columns, M, noise, left, setting, rank)


def _next(columns: Columns, setting: _Setting) -> Array:
    return setting.grid(next_column(columns.order, columns.rank, setting.length_b, setting.rng))


def _column(columns: Columns, b: Array, setting: _Setting) -> Asking[Columns]:
    """Measure W b with d queries."""
    rows = spread(setting.v, setting.length_a)
    A = Spread(rows.diagonal, setting.grid(rows.shift))
    T = yield from read_logits(Pairs(A, b[None]), setting.v)
    return columns.with_column(b, A.solve(T[:, 0]))


def _noise(columns: Columns, setting: _Setting) -> Asking[float]:
    """Error of a logit as the answers show it: fresh directions a against the first column, a'(W b)."""
    d, spec = setting.spec.dim, setting.spec
    g = setting.rng.standard_normal((SINGLE.noise_checks, d))
    t, a = yield from _ask_along(g, np.tile(columns.B[0], (SINGLE.noise_checks, 1)), setting.v, setting)
    error = float(np.sqrt(np.mean((t - a @ columns.C[:, 0]) ** 2)))
    typical = _typical(columns, setting)
    exact = spec.kind == "value" and spec.tolerance == 0
    if exact and not error <= max(CORE.misfit_of_another_class * typical, 100 * spec.eps):
        raise ModelMismatch(
            f"scores of a single head are linear in the first token; {SINGLE.noise_checks} fresh directions missed "
            "that by "
            f"{error:.2g} where a typical score is {typical:.2g}. Choose a wider class, or diagnose the target."
        )
    return max(error, CORE.roundings_granted * spec.eps)


def _typical(columns: Columns, setting: _Setting) -> float:
    """Root mean square of the generic part of the logits asked so far."""
    return float(setting.length_a / 2 * np.sqrt(np.mean(columns.C**2)))


@dataclass(eq=False)
class _Exact:
    """Random columns, tested by directions outside the span; `noise` is the error of a logit as far as it is known."""

    setting: _Setting
    tests: tuple[int, ...]
    noise: float

    def rank(self, span: Columns) -> int:
        return span.rank

    def look(self, span: Columns, count: int, before: int) -> Asking[list[tuple[float, Array]]]:
        """|a'W b| for fresh b and a outside the span, with the b."""
        bs = np.array([_next(span, self.setting) for _ in range(count)])
        t = yield from _residuals(span, bs, self.setting)
        return list(zip(t.tolist(), bs, strict=True))

    def leaves(self, span: Columns, left: list[tuple[float, Array]]) -> bool:
        return any(t > negligible(self.noise, span.rank) for t, _ in left)

    def column(self, span: Columns, left: list[tuple[float, Array]]) -> Asking[Columns]:
        # The candidate that leaves the span most is the best conditioned next column.
        b = max(left, key=lambda seen: seen[0])[1] if left else _next(span, self.setting)
        span = yield from _column(span, b, self.setting)
        if span.rank == 1:
            self.noise = yield from _noise(span, self.setting)
            if left:
                _require_decidable(self.noise, _typical(span, self.setting))
        return span


def _require_decidable(noise: float, typical: float) -> None:
    if negligible(noise, 1) > SINGLE.decidable * typical:
        raise NotIdentifiable(
            f"the rank cannot be told: a typical score is {typical:.2g} and the answers' own error moves scores by "
            f"{noise:.2g}, which hides all but the largest directions of W. Pass rank=, or allow longer tokens."
        )


def _residuals(columns: Columns, bs: Array, setting: _Setting) -> Asking[Array]:
    """|a'W b| (n,) for bs (n, d) and random a orthogonal to the span: zero, to noise, where W b is predicted."""
    d, n = setting.spec.dim, len(bs)
    g = np.array([outside(columns.U, setting.rng.standard_normal(d)) for _ in range(n)])
    w = outside(columns.U, setting.v / np.linalg.norm(setting.v))
    if np.linalg.norm(w) >= SINGLE.visible_value:
        t, _ = yield from _ask_along(g, bs, w, setting)
    else:
        # v lies in the span: a.v must come from there, and what that adds to the score cancels in a difference.
        t, _ = yield from _ask_along(np.vstack([g, -g]), np.vstack([bs, bs]), setting.v, setting, mirrored=True)
        t = (t[:n] - t[n:]) / 2
    # A saturated residual is a large one.
    return np.nan_to_num(np.abs(t), nan=np.inf)


def _ask_along(g: Array, bs: Array, w: Array, setting: _Setting, mirrored: bool = False) -> Asking[tuple[Array, Array]]:
    """Logits of a = (+-g/|g| + w/|w|) length_a / 2 with bs, and the a (n, d); signs keep a.v from cancelling."""
    g = g / np.linalg.norm(g, axis=1, keepdims=True)
    sign = np.where(g @ setting.v < 0, -1.0, 1.0)[:, None] if not mirrored else 1.0
    a = (sign * g + w / np.linalg.norm(w)) * (setting.length_a / 2)
    tokens = held(paired(a, bs).tokens, setting.spec.dtype)
    y = yield Probes(tokens, phase="pilot")
    return logits(y, (tokens[:, 0] - tokens[:, 1]) @ setting.v, bs @ setting.v).t, a


def _rows(columns: Columns, setting: _Setting) -> Asking[Array]:
    """M (k, d), W = U M, from k(d - k) queries on the unit vectors outside the columns' block."""
    k, d = columns.rank, setting.spec.dim
    if k == d:
        return assemble(columns, np.eye(d), np.zeros((d, 0)))
    A = mixing(columns, setting.v, setting.rng)
    seen = float(np.sqrt(np.mean((A @ columns.C) ** 2) / np.mean(np.sum(columns.B**2, axis=1))))
    if k < 4:
        # Too few columns to tell the size of the rest of W: the pilot's estimate as well.
        seen = max(seen, setting.size / math.sqrt(k * d))
    length_a, length_b = lengths_for(2 * SINGLE.typical_logit / seen, setting.spec.domain)
    A = on_grid(A * (length_a / 2), length_a + length_b, setting.spec.dtype)
    T = yield from read_logits(Pairs(A, Units(columns.rest, length_b, d)), setting.v)
    return assemble(columns, A, T / length_b)


def _outcome(columns: Columns, M: Array, noise: float, left: float, setting: _Setting, rank: int | None) -> Outcome:
    k, d, v = columns.rank, setting.spec.dim, setting.v
    relative = noise / max(_typical(columns, setting), noise)
    if k == d:
        note = f"rank found: {d}, full; all of W was asked for, which costs what Theorem 4.1 does."
        level = SPURIOUS * relative
        return Outcome(SingleHead(columns.U @ M, v), (note,), allows=_allowed(level, M, setting))
    K, Q = factors(columns.U, M, SPURIOUS * relative)
    found = f"rank found: {K.shape[1]}" if rank is None else f"rank {K.shape[1]} of the {rank} allowed"
    level = min(negligible(relative, k), 1.0)
    note = f"{found}; directions below {level:.1g} of ||W|| cannot be told from the answers' own error."
    beyond = Claim(
        "nothing beyond the rank",
        negligible(noise, k),
        left,
        statement=f"largest score outside the span of {k} columns, on fresh random pairs",
    )
    return Outcome(LowRankHead(K, Q, v), (note,), (beyond,), _allowed(level, M, setting))


def _allowed(level: float, M: Array, setting: _Setting) -> Allowance:
    """What noise leaves of W, as it was measured in the scores, and a declared tolerance of v, as it was read."""
    spec = setting.spec
    claim = Claim(RELATIVE_ERROR, level, statement="of W, from the noise measured in its scores")
    if spec.tolerance == 0:
        return Allowance(claim)
    error_v = math.sqrt(spec.dim) * spec.tolerance / unit_length(spec)
    noise = Noise(spec.tolerance, CORE.roundings_granted * spec.eps)
    return Allowance(claim, precision=Precision(level * float(np.linalg.norm(M)), error_v, noise, "measured"))
