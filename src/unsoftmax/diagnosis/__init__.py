"""Diagnosis: what kind of model answers, from a few hundred queries; which learner that is for is said in `choice`."""

from __future__ import annotations

from dataclasses import replace

from unsoftmax.diagnosis.automatic import Automatic
from unsoftmax.diagnosis.examine import allowance, examine
from unsoftmax.diagnosis.findings import CODES, Diagnosis, Finding, Suggestion
from unsoftmax.diagnosis.limits import Accepted, input_limits
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.reductions import watched
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run
from unsoftmax.spec import EXPLAINED

__all__ = ["CODES", "Automatic", "Diagnosis", "Finding", "Suggestion", "allowance", "diagnose", "examine"]


def diagnose(oracle: Oracle, *, seed: int = 0) -> Diagnosis:
    """Say what the target is: precision, one-row behaviour, order, heads, rank, network, norm; each with evidence."""
    if not isinstance(oracle, Oracle):
        raise InvalidArgument(
            f"`oracle` must be an oracle (got {type(oracle).__name__}); wrap it with us.oracle(fn, dim)."
        )
    if not isinstance(seed, int) or seed < 0:
        raise InvalidArgument(f"`seed` must be an integer of at least 0 (got {seed!r}).")
    stack = Stack(oracle)
    accepted = Accepted()
    found = run(watched(examine(oracle.spec, seed), accepted), stack)
    asked = oracle.spec.vocabulary is None and oracle.spec.kind not in EXPLAINED
    limits = tuple(input_limits(stack, accepted)) if asked else ()
    return replace(found, findings=found.findings + limits, usage=stack.meter.snapshot())
