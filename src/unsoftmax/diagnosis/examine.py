"""The diagnosis as a program: a few observations, then a sketch of the class they point to."""

from __future__ import annotations

import numpy as np

from unsoftmax import learners
from unsoftmax.diagnosis.answers import QUERIES, Answers, answers
from unsoftmax.diagnosis.findings import Diagnosis, Finding
from unsoftmax.diagnosis.mixing import mixing
from unsoftmax.diagnosis.one_row import OneRow, one_row
from unsoftmax.diagnosis.sequences import Sequences, sequences
from unsoftmax.diagnosis.several import several_heads
from unsoftmax.diagnosis.single import single_head
from unsoftmax.diagnosis.sketch import sketch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import announced, as_values, only_values
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.theory import low_rank_queries
from unsoftmax.verify.heads import minimum as heads_verification

_DROWNED = 1e-3
_HOPELESS = 0.02
_LONGER = 1e3
_OBSERVED = 104
"""Queries of the observations and of the input limits, at most."""


def allowance(spec: OracleSpec) -> int:
    """Most queries a diagnosis asks: 400 + 6 d for scalar answers, 100 + 4 d for vectors."""
    return 400 + 6 * spec.dim if spec.outputs is None else 100 + 4 * spec.dim


def examine(spec: OracleSpec, seed: int) -> Asking[Diagnosis]:
    """Observe, choose a class, try it on a subspace; "outside" with the failed assumption if nothing fits."""
    if spec.kind in EXPLAINED:
        return (yield from only_values(examine(as_values(spec), seed)))
    if spec.shows is not None:
        words = f"The target shows {spec.shows} of the next token, so its output layer is learned."
        return Diagnosis("output layer", learners.OutputLayer(), (Finding("access", spec.shows, words),))
    if spec.vocabulary is not None:
        words = "The target takes token ids, so it is tried as a head over a vocabulary."
        return Diagnosis("token head", learners.TokenHead(), (Finding("access", "token ids", words),))
    rng = np.random.default_rng([seed, 0xD1A6])
    norm = min(1.0, 0.9 * spec.domain.norm_limit)
    if spec.link is not None:
        words = f"The answers are {spec.link} of the model's value and saturate for long tokens."
        reason = "Behind a link only a single head is learned, so it is tried as one."
        return Diagnosis("single head", learners.Approximate(), (Finding("link", spec.link, words),), (reason,))
    known = yield from answers(spec, norm, rng)
    if spec.kind == "membership" or known.labels:
        return labels(spec, known, tuple(known.findings(spec)))
    room = allowance(spec) - _OBSERVED
    for _ in range(2):
        if (known.size > 0 and known.relative_noise <= _DROWNED) or norm * _LONGER > spec.domain.norm_limit:
            break
        # Additive noise and rounding are outscaled by longer tokens.
        norm, room = norm * _LONGER, room - QUERIES
        known = yield from answers(spec, norm, rng)
    found = tuple(known.findings(spec))
    if known.relative_noise > _HOPELESS and not known.constant:
        return outside(
            found, "the answers are drowned in noise at the token lengths allowed; raise max_norm if possible"
        )
    if known.constant and known.size == 0:
        return Diagnosis("zero", None, found, ("Every sequence asked so far got the answer 0.",))
    if known.constant:
        return outside(found, "every sequence asked so far got the same answer; a constant shows no parameters")
    row = yield from one_row(spec, norm, known, rng)
    seen = yield from sequences(spec, norm, known, rng)
    found += (row.finding, *seen.findings)
    if seen.ordered:
        return outside(found, "the order of the other tokens changes the answer, and no class here has positions")
    if spec.outputs is not None:
        law = None
        if row.shape in ("linear", "affine"):
            law = yield from mixing(spec, norm, known, rng, room)
        return layer(row, seen, found, law)
    if not seen.others:
        return alone(row, found)
    if row.shape in ("linear", "affine"):
        return (yield from attention(spec, known, row, seen, found, seed, room))
    if row.shape in ("homogeneous", "piecewise linear", "smooth"):
        return (yield from network(spec, known, row, seen, found, seed, room))
    return outside(found, f"a single vector is answered in a {row.shape} way, and no scalar class here does that")


def outside(found: tuple[Finding, ...], because: str) -> Diagnosis:
    """No learner fits."""
    return Diagnosis("outside", None, found, (f"No learner is chosen: {because}.",))


def labels(spec: OracleSpec, known: Answers, found: tuple[Finding, ...]) -> Diagnosis:
    """Labels tell too little for a diagnosis of their own."""
    if known.constant:
        return outside(found, "every sequence asked so far got the same label")
    return Diagnosis(
        "head behind labels",
        learners.Membership(),
        found,
        ("Labels show only the sign of the answer; they are tried as those of a single head.",),
    )


def layer(row: OneRow, seen: Sequences, found: tuple[Finding, ...], law: Finding | None) -> Diagnosis:
    """Vector answers: an attention layer, with a norm if one-row answers are not affine."""
    if not seen.others:
        return outside(found, "the other tokens do not matter, so there is no attention to recover")
    if law is not None:
        found += (law,)
        if not law.value:
            return outside(found, "small differences of score do not move the answers as softmax does")
    norms = {"linear": None, "affine": None, "bounded": "post", "normalised": "pre"}
    if row.shape not in norms:
        return outside(found, "a single vector is answered neither affinely nor normalised, as no layer here does")
    norm = norms[row.shape]
    words = "No normalisation is seen." if norm is None else f"A normalisation stands {norm}-attention."
    found += (Finding("norm", norm, words, 0.8),)
    return Diagnosis("attention layer", learners.AttentionLayer(norm="auto" if norm else None), found)


def alone(row: OneRow, found: tuple[Finding, ...]) -> Diagnosis:
    """The other tokens do not matter: a function of the last one."""
    if row.shape in ("linear", "homogeneous"):
        return Diagnosis("ReLU network", learners.ReluNetwork(), found)
    if row.shape in ("affine", "piecewise linear"):
        return Diagnosis("ReLU network", learners.ReluNetwork(bias=True), found)
    return outside(found, "only the last token matters and it is not answered piecewise linearly")


def attention(
    spec: OracleSpec,
    known: Answers,
    row: OneRow,
    seen: Sequences,
    found: tuple[Finding, ...],
    seed: int,
    allowed: int,
) -> Asking[Diagnosis]:
    """Linear one-row answers: one head or several, with or without affine terms."""
    affine = row.constant or not seen.tied
    # A head takes d values and a rank of at least 1: too small a budget is refused here, before the sketches.
    least = low_rank_queries(spec.dim, 1) + heads_verification(spec)
    one = yield from announced(single_head(spec, known, affine, seed, allowed), least)
    found += one.findings
    if one.learner is not None:
        return Diagnosis(one.family, one.learner, found, one.reasons)
    many = yield from several_heads(spec, known, affine, seed, allowed - one.queries)
    found += many.findings
    if many.learner is not None:
        return Diagnosis(many.family, many.learner, found, many.reasons)
    return outside(found, f"neither one softmax head ({one.reason}) nor several ({many.reason}) explain the answers")


def network(
    spec: OracleSpec,
    known: Answers,
    row: OneRow,
    seen: Sequences,
    found: tuple[Finding, ...],
    seed: int,
    allowed: int,
) -> Asking[Diagnosis]:
    """A network behind: its attention is read by rays on a subspace and held against fresh rays."""
    trial = yield from sketch(learners.AttentionBehind(), 4, spec, seed, allowed)
    evidence = {"queries": trial.queries, "gap": trial.gap, "reason": trial.reason}
    if not trial.explains(known.relative_noise):
        found += (Finding("attention behind a network", False, "No softmax head is seen behind it.", 0.9, evidence),)
        return outside(found, f"attention behind a network does not explain the answers ({trial.reason})")
    found += (Finding("attention behind a network", True, "A softmax head stands before the network.", 0.9, evidence),)
    if row.shape == "smooth":
        return Diagnosis("attention behind a network", learners.AttentionBehind(), found)
    return Diagnosis("transformer", learners.Transformer(), found)
