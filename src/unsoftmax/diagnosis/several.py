"""Is it several softmax heads, and how many?"""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.diagnosis.mixing import ALIKE_QUERIES, MIXING_QUERIES
from unsoftmax.diagnosis.single import Trial, near, why
from unsoftmax.diagnosis.sketch import attempt, said, sketch
from unsoftmax.diagnosis.weights import WEIGHT_QUERIES
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.ground import read_ground
from unsoftmax.learners.heads.saturation import discover
from unsoftmax.spec import OracleSpec

_DIMENSIONS = 6
"""Dimensions in which heads are counted: large enough to part them, small enough for a few hundred queries."""

_AFFINE_DIMENSIONS = {4: 0, 6: 600, 14: 2400}
"""Dimensions in which heads with affine terms are learned, and the queries from which on they are tried. Four heads in
four dimensions take a thousand queries and are parted half of the time; in six they take 400 and always are."""

LAW_QUERIES = MIXING_QUERIES + WEIGHT_QUERIES + ALIKE_QUERIES
"""Kept for the laws that all sums of softmax heads obey."""


def several_heads(spec: OracleSpec, known: Answers, affine: bool, seed: int, allowed: int) -> Asking[Trial]:
    """Count the heads by their jumps, then try the learner where there are more dimensions than heads."""
    if affine:
        return (yield from _affine_heads(spec, known, seed, allowed))
    learner = learner_of("multi-head attention")
    count, queries, refusal = yield from attempt(_count, _DIMENSIONS, spec, seed, allowed - LAW_QUERIES)
    if count is None:
        finding = Finding("several heads", False, "Several softmax heads do not explain the answers.")
        return Trial("", None, (finding,), queries, said(refusal), near=learner)
    evidence: dict[str, Any] = {"queries for counting": queries}
    if count == 1:
        # One head was tried before, and refused: a single jump is that of another law.
        words = "One jump is seen, and one softmax head does not explain the answers."
        found = Finding("several heads", False, words, evidence=evidence)
        return Trial("", None, (found,), queries, "one head alone is seen", near=learner)
    k = min(spec.dim, count + 2)
    if allowed - queries - LAW_QUERIES > 2 * count * k * (k + 1) + 40 * count:
        trial = yield from sketch(learner, k, spec, seed, allowed - queries - LAW_QUERIES)
        queries += trial.queries
        evidence |= {"dimensions": k, "gap": trial.gap}
        if not trial.explains(known.relative_noise):
            words = f"{count} jumps are seen, but no sum of softmax heads."
            finding = Finding("several heads", False, words, evidence=evidence)
            return Trial("", None, (finding,), queries, why(trial), near=near(trial, learner))
    found = Finding("heads", count, f"{count} softmax heads are seen.", evidence=evidence)
    return Trial("multi-head attention", learner, (found,), queries)


def _affine_heads(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[Trial]:
    """Several heads with key offsets and a constant, tried as a whole on a few dimensions, then on more."""
    affine = learner_of("multi-head attention", affine=True)
    room, tried = allowed - LAW_QUERIES, 0
    sizes = [k for k, needed in _AFFINE_DIMENSIONS.items() if needed <= room]
    for k in dict.fromkeys(min(spec.dim, k) for k in sizes[1:] or (min(_AFFINE_DIMENSIONS),)):
        trial = yield from sketch(affine, k, spec, seed, room - tried)
        tried += trial.queries
        if trial.explains(known.relative_noise):
            evidence = {"dimensions": k, "queries": tried, "gap": trial.gap}
            words = "Several softmax heads with affine terms explain the answers."
            return Trial("multi-head attention", affine, (Finding("heads", None, words, evidence=evidence),), tried)
    words = "Several softmax heads with affine terms do not explain the answers."
    # A refusal speaks of the subspace, which may have fewer dimensions than there are heads; wrong answers do not.
    close = affine if trial.gap is None else near(trial, affine)
    return Trial("", None, (Finding("several heads", False, words),), tried, why(trial), near=close)


def _count(spec: OracleSpec, seed: int) -> Asking[int]:
    """Heads found as jumps; inside each, doubling the copies moved the logit by log 2 as softmax must."""
    rng = np.random.default_rng(seed)
    ground = yield from read_ground(spec, rng)
    _, v, _ = yield from discover(ground, rng)
    return len(v)
