"""Theorem 5.1: a head of rank r, by the cross scheme at the degrees of freedom or by the paper's random probes.

Theory: docs/theory/low-rank.md, "Theorem 5.1", statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument, ModelMismatch
from unsoftmax.learners.core.acceptance import EXPLAINING, check
from unsoftmax.learners.core.base import Forecast, Program
from unsoftmax.learners.core.costs import SCORES, scores_range
from unsoftmax.learners.core.noise import undeclared_noise
from unsoftmax.learners.explained.served import low_rank_forecast, low_rank_program
from unsoftmax.learners.single.affine import with_affine_terms
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.cross import cross
from unsoftmax.learners.single.noisy_cross import noisy_cross
from unsoftmax.learners.single.random_pairs import random_pairs
from unsoftmax.probes.scales import require_pairs
from unsoftmax.spec import EXPLAINED, OracleSpec


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
            return random_pairs(small, seed, self.method, self.rank, self._count(spec.dim))

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
