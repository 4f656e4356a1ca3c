"""Is it one head with another kernel than the exponential? The learner's reading and table, on a few dimensions."""

from __future__ import annotations

from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.diagnosis.single import Trial, near, why
from unsoftmax.diagnosis.sketch import sketch
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.spec import OracleSpec

_DIMENSIONS = 3
"""Dimensions of the sketch: nine entries of W beside the table of one line, and fresh sequences that no table saw."""

KERNEL_QUERIES = 125
"""Kept for it: 50 for the table, 36 fresh sequences, 14 for v and W, the size of the pairs in up to three rounds."""


def other_kernel(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[Trial]:
    """Weights kappa(s) of any positive, monotone kappa, divided by their sum or not; the kernel is named."""
    learner = learner_of("kernel head")
    trial = yield from sketch(learner, _DIMENSIONS, spec, seed, allowed)
    evidence = {"dimensions": _DIMENSIONS, "queries": trial.queries, "gap": trial.gap, "reason": trial.reason}
    if not trial.explains(known.relative_noise) or not isinstance(trial.model, KernelHead):
        words = "No head with another kernel of its scores explains the answers."
        finding = Finding("kernel", "none", words, evidence=evidence)
        return Trial("", None, (finding,), trial.queries, why(trial), near=near(trial, learner))
    kernel, summed = str(trial.model.kernel), not trial.model.normalised
    weighed = "Weights are summed up, not divided by their sum." if summed else "Weights are divided by their sum."
    found = (
        Finding("kernel", kernel, f"One head with the kernel {kernel} explains the answers.", evidence=evidence),
        Finding("normalised", not summed, weighed),
    )
    return Trial("kernel head", learner, found, trial.queries)
