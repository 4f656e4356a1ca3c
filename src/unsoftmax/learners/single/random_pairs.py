"""Theorem 5.1 as the paper states it: random rank-one probes, then a program that finds the low-rank matrix.

Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Outcome, Program
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import read_logits, read_values, size_of_scores, unit_length
from unsoftmax.models.single_head import LowRankHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.pairs import Matched
from unsoftmax.probes.scales import lengths_for, on_grid
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.rank_one import RankOne, alternating, balanced, nuclear_norm, polished, residual
from unsoftmax.spec import OracleSpec


def random_pairs(
    spec: OracleSpec, seed: int, method: Literal["nuclear", "altmin"], rank: int | None, measurements: int
) -> Program:
    """Ask `measurements` random pairs and fresh ones, solve by `method`, and judge the result on the latter."""
    rng = np.random.default_rng(seed)
    v = yield from read_values(spec)
    size = yield from size_of_scores(v, spec, rng)
    A, B = _design(measurements + SINGLE.fresh_pairs, v, size, spec, rng)
    t = yield from _read(A[:measurements], B[:measurements], v, "main")
    kept = yield from _read(A[measurements:], B[measurements:], v, "held-out")
    # The programs see vectors of unit variance, as the theorem does.
    unit_a, unit_b = float(np.std(A)), float(np.std(B))
    known = RankOne(A[:measurements] / unit_a, B[:measurements] / unit_b)
    rounding = _rounding(v, spec)
    K, Q, notes = _solved(known, t / (unit_a * unit_b), method, rank, max(SINGLE.program_accuracy, 20 * rounding))
    gap = residual(RankOne(A[measurements:], B[measurements:]), kept, K, Q)
    allowed = _allowed(v, kept, A[measurements:], spec)
    if not gap <= allowed:
        raise ModelMismatch(
            f"the {method} solution misses {SINGLE.fresh_pairs} held-out measurements by {gap:.2g} of their size, "
            "where "
            f"{allowed:.2g} was allowed: {measurements} measurements do not determine W by this program, or the target "
            'is no head of that rank, or noisier than declared. Raise `measurements`, or use method="cross".'
        )
    claim = Claim(
        RELATIVE_ERROR,
        max(4 * gap, 1e3 * rounding),
        gap,
        theorem="Theorem 5.1",
        statement=f"of W, from {SINGLE.fresh_pairs} held-out random measurements",
    )
    return Outcome(LowRankHead(K, Q, v), notes, allows=Allowance(claim))


def _design(n: int, v: Array, size: float, spec: OracleSpec, rng: np.random.Generator) -> tuple[Array, Array]:
    """Gaussian a, b (n, d), scaled so that scores are of order one and no token leaves the domain.

    The smallest a.v (16 % of draws) are drawn again: their answers would carry almost nothing.
    """
    d = spec.dim
    A, B = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    unit = v / np.linalg.norm(v)
    while (weak := np.abs(A @ unit) < SINGLE.visible_value).any():
        A[weak] = rng.standard_normal((int(weak.sum()), d))
    longest = [float(np.linalg.norm(x, axis=1).max()) for x in (A, B)]
    # E (a'Wb)^2 = |a|^2 |b|^2 ||W||_F^2 / d^2; the longest vector is what the domain limits.
    product = SINGLE.typical_logit * longest[0] * longest[1] / size
    length_a, length_b = lengths_for(product, spec.domain)
    A, B = A * (0.99 * length_a / longest[0]), B * (0.99 * length_b / longest[1])
    return on_grid(A, length_a + length_b, spec.dtype), on_grid(B, length_a + length_b, spec.dtype)


def _read(A: Array, B: Array, v: Array, phase: str) -> Asking[Array]:
    T = yield from read_logits(Matched(A, B), v, phase=phase)
    return T[:, 0]


def _solved(
    known: RankOne, t: Array, method: Literal["nuclear", "altmin"], rank: int | None, accuracy: float
) -> tuple[Array, Array, tuple[str, ...]]:
    if method == "altmin":
        assert rank is not None
        fit = alternating(known, t, rank)
        state = "" if fit.converged else ", not to convergence"
        note = f"alternating minimisation: misfit {fit.residual:.1g} after {fit.iterations} steps{state}."
        return fit.K, fit.Q, (note,)
    found = nuclear_norm(known, t, tolerance=accuracy)
    root = np.sqrt(found.s)
    K, Q = found.U * root, found.V * root
    r, d = len(found.s), known.dim
    state = "" if found.converged else ", not to convergence"
    note = (
        f"nuclear norm: rank {r}, duality gap {found.gap:.1g} after {found.iterations} iterations{state}"
        f"{'' if rank is None or r <= rank else f'; rank was given as {rank}'}."
    )
    if 0 < r * (2 * d - r) < len(known):
        # The program's solution to its last digits: the measurements overdetermine a matrix of this rank.
        K, Q, _, _ = polished(known, t, K, Q, 1e-14)
    return *balanced(K, Q), (note,)


def _allowed(v: Array, kept: Array, A: Array, spec: OracleSpec) -> float:
    """Relative gap on held-out measurements that the answers' number format and tolerance explain."""
    typical = math.sqrt(float(np.mean(kept**2))) or 1.0
    # dt/dy = 4 / |a.v| near t = 0, through v's unit tokens |a| times that. An error of the program's data grows on its
    # way to W, about tenfold with measurements in hand and far more without; what it left is what was measured.
    through_v = float(np.median(np.linalg.norm(A, axis=1))) / unit_length(spec)
    tolerated = 4 * spec.tolerance * (1 + through_v) / float(np.median(np.abs(A @ v))) / typical
    return max(SINGLE.explained, 1e4 * _rounding(v, spec), 10 * tolerated, min(SINGLE.measurable, 1e3 * tolerated))


def _rounding(v: Array, spec: OracleSpec) -> float:
    """Unit of rounding of the answers: the declared one, or float32's if all of v fits that format."""
    with np.errstate(over="ignore"):
        narrow = np.array_equal(v, v.astype(np.float32))
    return max(spec.eps, float(np.finfo(np.float32).eps) if narrow else 0.0)
