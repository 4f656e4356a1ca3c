"""Diagnosis: what kind of model answers, from a few hundred queries. In reading order.

automatic  the learner that diagnoses first: what `recover` uses when none is given
examine    the diagnosis as a program: observations, then a sketch of the class they point to
findings   what was observed, with its evidence; a diagnosis in words and as data
choice     which learner fits which class, and how it is seen: a new family is one line of `FAMILIES`
answers    what answers are like: constant, labels, repeatable, in which format, how noisy
one_row    what a single vector is answered
sequences  what the other tokens do, and whether their order counts
weights    do scores grow with the tokens
mixing     the mixing law of softmax attention
sketch     a learner run in a few dimensions, and held against fresh queries there
scalar     one number per sequence: one head or several, another kernel, a network behind
single     is it one softmax head, and of which rank
layers     vector answers: a layer, and what stands around it
served     layers in which order counts
depth      stacks, seen where they are one wide layer
tokens     token ids
limits     input limits, tried gently
constants  what was measured or chosen, side by side
"""

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
