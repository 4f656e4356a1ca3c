"""Equivalence tests on fresh queries -> certificate. One file per kind of answer; `check` chooses."""

from __future__ import annotations

from unsoftmax.learners.base import Asking
from unsoftmax.models.base import Model
from unsoftmax.result import Certificate
from unsoftmax.spec import OracleSpec
from unsoftmax.verify import values


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    return values.queries(spec)


def check(model: Model, spec: OracleSpec, seed: int) -> Asking[Certificate]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised."""
    return values.check(model, spec, seed)
