"""Is it several softmax heads, and how many?"""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax import learners
from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.diagnosis.mixing import MIXING_QUERIES, mixing
from unsoftmax.diagnosis.single import Trial, why
from unsoftmax.diagnosis.sketch import attempt, sketch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.ground import read_ground
from unsoftmax.learners.multi_head import discover
from unsoftmax.spec import OracleSpec

_DIMENSIONS = 6
_AFFINE_DIMENSIONS = 4
"""Subspaces in which heads are counted: large enough to part them, small enough for a few hundred queries."""


def several_heads(spec: OracleSpec, known: Answers, affine: bool, seed: int, allowed: int) -> Asking[Trial]:
    """Count the heads by their jumps, then try the learner where there are more dimensions than heads."""
    if affine:
        return (yield from _affine_heads(spec, known, seed, allowed))
    learner = learners.MultiHead()
    count, queries, reason = yield from attempt(_count, _DIMENSIONS, spec, seed, allowed - MIXING_QUERIES)
    if reason.startswith(("Entangled", "TooDear")):
        # Proportional scores, or too many heads to count here: the law that all sums of softmax heads obey decides.
        norm = min(1.0, 0.9 * spec.domain.norm_limit)
        law = yield from mixing(spec, norm, known, np.random.default_rng([seed, 0x3A]), allowed - queries)
        if law is not None and law.value:
            words = (
                "Several softmax heads are seen, proportional or too many to count; the learner parts them or refuses."
            )
            heads = Finding("heads", None, words, 0.7)
            return Trial("multi-head attention", learner, (law, heads), queries + MIXING_QUERIES)
    if count is None:
        finding = Finding("several heads", False, "Several softmax heads do not explain the answers.", 0.9)
        return Trial("", None, (finding,), queries, reason)
    evidence: dict[str, Any] = {"queries for counting": queries}
    k = min(spec.dim, count + 2)
    confidence = 0.8
    if allowed - queries > 2 * count * k * (k + 1) + 40 * count:
        trial = yield from sketch(learner, k, spec, seed, allowed - queries)
        queries += trial.queries
        evidence |= {"dimensions": k, "gap": trial.gap}
        if not trial.explains(known.relative_noise):
            finding = Finding(
                "several heads", False, f"{count} jumps are seen, but no sum of softmax heads.", 0.9, evidence
            )
            return Trial("", None, (finding,), queries, why(trial))
        confidence = 0.95
    found = Finding("heads", count, f"{count} softmax heads are seen.", confidence, evidence)
    return Trial("multi-head attention", learner, (found,), queries)


def _affine_heads(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[Trial]:
    """Several heads with key offsets and a constant, tried as a whole on a few dimensions."""
    affine = learners.MultiHead(affine=True)
    trial = yield from sketch(affine, _AFFINE_DIMENSIONS, spec, seed, allowed)
    if not trial.explains(known.relative_noise):
        words = "Several softmax heads with affine terms do not explain the answers."
        return Trial("", None, (Finding("several heads", False, words, 0.9),), trial.queries, why(trial))
    evidence = {"dimensions": _AFFINE_DIMENSIONS, "queries": trial.queries, "gap": trial.gap}
    finding = Finding("heads", None, "Several softmax heads with affine terms explain the answers.", 0.9, evidence)
    return Trial("multi-head attention", affine, (finding,), trial.queries)


def _count(spec: OracleSpec, seed: int) -> Asking[int]:
    """Heads found as jumps; inside each, doubling the copies moved the logit by log 2 as softmax must."""
    rng = np.random.default_rng(seed)
    ground = yield from read_ground(spec, rng)
    _, v, _ = yield from discover(ground, rng)
    return len(v)
