"""What a verification is: a plan for a class of models, and what fresh answers showed.

A plan counts the fresh queries of a model before there is one and checks it once there is: the two never part.

Theory: docs/theory/verification.md, "Plans".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Statement:
    """How far the parameters may be off, as fresh answers show it.

    relative   of every parameter, or
    of_W       where a W is nothing: of every W, as a norm, and
    of_others  relative, of all but these
    """

    relative: Claim | None = None
    of_W: Claim | None = None
    of_others: Claim | None = None

    @property
    def absolute(self) -> tuple[Claim, ...]:
        """Those that stand where a W is nothing."""
        return tuple(claim for claim in (self.of_W, self.of_others) if claim is not None)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.absolute if self.relative is None else (self.relative, *self.absolute)


@dataclass(frozen=True)
class Checked:
    """What fresh answers showed: gaps against what was allowed, and the error of the parameters that they imply."""

    gaps: tuple[Claim, ...]
    stated: Statement = field(default_factory=Statement)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (*self.stated.claims, *self.gaps)

    @property
    def holds(self) -> bool:
        """Whether queries were asked and nothing speaks against the model."""
        return Certificate(self.claims).holds


Count = tuple[int, int]
"""Fewest and most fresh queries."""


@dataclass(frozen=True)
class Plan:
    """How models of one class are verified.

    count    fresh queries for an oracle of this spec and a model with (fewest, most) heads, as (fewest, most)
    check    the program that asks them: model, spec, seed, what the learner allows -> Checked; it raises nothing
    """

    count: Callable[[OracleSpec, Count], Count]
    check: Callable[[Any, OracleSpec, int, Allowance], Asking[Checked]]


def exactly(queries: Callable[[OracleSpec], int]) -> Callable[[OracleSpec, Count], Count]:
    """The count of a plan whose queries depend on the oracle alone."""

    def count(spec: OracleSpec, heads: Count) -> Count:
        return queries(spec), queries(spec)

    return count
