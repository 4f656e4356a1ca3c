"""Theorem 5.1: a head of rank r, by the cross scheme at the degrees of freedom or by the paper's random probes.

The random probes are rank-one measurements, from which a program finds the matrix of least rank, as the paper has it.

Theory: docs/theory/low-rank.md, "Theorem 5.1", statement.
Theory: docs/theory/low-rank.md, "Random probes".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument, ModelMismatch
from unsoftmax.learners.core.acceptance import EXPLAINING, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.costs import SCORES, scores_range
from unsoftmax.learners.core.noise import undeclared_noise
from unsoftmax.learners.explained.served import low_rank_forecast, low_rank_program
from unsoftmax.learners.single.affine import with_affine_terms
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.cross import cross
from unsoftmax.learners.single.measure import read_logits, read_values, size_of_scores, unit_length
from unsoftmax.learners.single.noisy_cross import noisy_cross
from unsoftmax.models.single_head import LowRankHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.pairs import Matched
from unsoftmax.probes.scales import lengths_for, on_grid, require_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.rank_one import RankOne, alternating, balanced, nuclear_norm, polished, residual
from unsoftmax.spec import EXPLAINED, INSIDE, OracleSpec


@dataclass(frozen=True)
class LowRank:
    """Learn a single head whose W has rank r < d; the model keeps W as factors.

    rank          r, or None to find it ("cross", or "nuclear" with `measurements`).
    method        "cross": r(2d - r) chosen pair queries and linear algebra, the number of unknowns.
                  "nuclear": the paper's: random pairs and the nuclear-norm program.
                  "altmin": the same pairs, alternating minimisation over factors of the given rank.
    measurements  random pairs for "nuclear" and "altmin"; None takes `theory.nuclear_norm_measurements`.
    affine        learn the wider class with a key offset c and an output constant, d + 1 queries more.
    """

    rank: int | None = None
    method: Literal["cross", "nuclear", "altmin"] = "cross"
    measurements: int | None = None
    affine: bool = False

    accepts = EXPLAINING

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if spec.kind in EXPLAINED:
            if self.method != "cross" or self.affine:
                raise InvalidArgument(
                    f'kind="{spec.kind}" is learned with method="cross" and affine=False (got method={self.method!r}, '
                    f"affine={self.affine})."
                )
            return low_rank_forecast(spec, self.rank)
        plain = self._forecast(spec)
        if not self.affine:
            return plain
        phases = {
            name: n + (1 if name == "values" else spec.dim if name == "main" else 0) for name, n in plain.phases.items()
        }
        return replace(plain, phases=phases)

    def _forecast(self, spec: OracleSpec) -> Forecast:
        require_pairs(spec, "LowRank")
        d = spec.dim
        if self.method != "cross":
            main = self._count(d)
            return Forecast({"values": d, "main": main, "held-out": SINGLE.fresh_pairs}, extra=64 + main // 100)
        if self.measurements is not None:
            raise InvalidArgument(
                f'`measurements` is for method="nuclear" and "altmin" (got {self.measurements}); the cross scheme '
                "asks r(2d - r) queries, no more and no fewer."
            )
        if self.rank is None:
            return Forecast({"values": d}, ranges={"scores": scores_range(d, noisy=True)}, supposing=SCORES)
        main = theory.low_rank_queries(d, self.rank) - d
        # Noise that nobody declared, looked for in answers of all digits, is measured and takes probes of its own.
        noisy = spec.kind == "approximate" or (spec.dtype == "float64" and not self.affine)
        if not noisy:
            return Forecast({"values": d, "main": main}, extra=64 + main // 100)
        return Forecast({"values": d, "main": main}, ranges={"pilot and repair": (0, 2 * main + 20 * d + 200)})

    def _count(self, d: int) -> int:
        """Random pairs to ask."""
        if self.rank is None and (self.method == "altmin" or self.measurements is None):
            needs = "`rank`" if self.method == "altmin" else "`rank` or `measurements`"
            raise InvalidArgument(f'method="{self.method}" needs {needs}; method="cross" finds the rank by itself.')
        m = self.measurements
        if m is None:
            assert self.rank is not None
            m = theory.nuclear_norm_measurements(d, self.rank)
        least = 1 if self.rank is None else theory.low_rank_unknowns(d, self.rank) - d
        if not least <= m <= d * d:
            raise InvalidArgument(
                f"`measurements` must be between the unknowns of W, {least}, and d^2 = {d * d} (got {m}); "
                f'"nuclear" needs about {theory.NUCLEAR_NORM_CONSTANT:g} per unknown, and beyond d^2 SingleHead needs '
                "no low rank."
            )
        if self.method == "nuclear" and m > SINGLE.largest_gram:
            raise InvalidArgument(
                f"the nuclear-norm program keeps m^2 numbers and m = {m} exceeds {SINGLE.largest_gram}; "
                'use method="altmin", or "cross", which needs no program.'
            )
        return m

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if spec.kind in EXPLAINED:
            return low_rank_program(spec, seed, self.rank)
        if self.method == "cross" and not self.affine:
            return _cross(spec, seed, self.rank)

        def plain(small: OracleSpec) -> Program:
            if self.method == "cross":
                return cross(small, seed, self.rank)
            return _random_pairs(small, seed, self.method, self.rank, self._count(spec.dim))

        whole = with_affine_terms(plain, spec, seed) if self.affine else plain(spec)
        return _if_exact(whole, spec, seed, "affine=True" if self.affine else f'method="{self.method}"', self.affine)


def _if_exact(program: Program, spec: OracleSpec, seed: int, what: str, constant: bool) -> Program:
    """A program for answers as exact as declared, unless three or four queries show that they are not."""
    rng = np.random.default_rng([seed, 3])
    if (yield from undeclared_noise(spec, rng, above=SINGLE.harmless_noise, constant=constant)):
        raise ModelMismatch(
            f"one-token answers do not add up: they carry noise that was not declared, and {what} takes answers to be "
            'as exact as declared. Declare tolerance=, or use LowRank(method="cross") without affine terms, which '
            "measures the noise and states what it leaves."
        )
    return (yield from program)


def _cross(spec: OracleSpec, seed: int, rank: int | None) -> Program:
    """The cross scheme for exact answers, or for noisy ones: declared so, or found so by three queries."""
    if spec.kind == "approximate" or (yield from undeclared_noise(spec, np.random.default_rng([seed, 3]))):
        return (yield from noisy_cross(spec, seed, rank))
    return (yield from cross(spec, seed, rank))


def _random_pairs(
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
    A, B = A * (INSIDE * length_a / longest[0]), B * (INSIDE * length_b / longest[1])
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
