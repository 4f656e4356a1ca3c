"""The diagnosis as a program: a few observations, then a sketch of the class they point to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.diagnosis.answers import QUERIES, Answers, answers, telling
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.depth import depth
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion, outside
from unsoftmax.diagnosis.layers import layer
from unsoftmax.diagnosis.mixing import unexplained
from unsoftmax.diagnosis.one_row import one_row
from unsoftmax.diagnosis.scalar import scalar
from unsoftmax.diagnosis.sequences import Sequences, sequences, tied
from unsoftmax.diagnosis.served import served
from unsoftmax.diagnosis.sketch import Meter, limited
from unsoftmax.diagnosis.tokens import over_tokens
from unsoftmax.errors import Code
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import as_values, only_values
from unsoftmax.spec import EXPLAINED, OracleSpec


def allowance(spec: OracleSpec) -> int:
    """Most queries a diagnosis asks: 460 + 6 d for scalar answers, 138 + 4 d for vectors (190 + 4 d for short ones)."""
    room = 351 + 6 * spec.dim if spec.outputs is None else 81 + 4 * spec.dim
    return room + telling(spec, DIAGNOSIS.observed_vectors, DIAGNOSIS.observed)


def examine(spec: OracleSpec, seed: int) -> Asking[Diagnosis]:
    """Observe, choose a class, try it on a subspace; "outside" with the failed assumption if nothing fits."""
    if spec.kind in EXPLAINED:
        return (yield from only_values(examine(as_values(spec), seed)))
    declared = _declared(spec)
    if declared is not None:
        return declared
    if spec.vocabulary is not None:
        return (yield from over_tokens(spec, seed))
    rng = np.random.default_rng([seed, 0xD1A6])
    known, norm, room = yield from _answers(spec, rng)
    found = tuple(known.findings(spec))
    if spec.kind == "membership" or known.labels:
        return labels(known, found)
    hopeless = _unreadable(spec, known, found)
    if hopeless is not None:
        return hopeless
    if spec.outputs is not None:
        # Positions show by the order alone, and what single vectors say is asked of those without.
        seen = yield from sequences(spec, norm, known, rng)
        if seen.ordered and seen.speaks != "first" and spec.domain.length_limit > 2:
            return (yield from _positioned(spec, norm, known, (*found, *seen.findings), rng, room))
    row = yield from one_row(spec, norm, known, rng)
    if spec.outputs is None:
        seen = yield from sequences(spec, norm, known, rng)
    seen = yield from tied(seen, spec, norm, known, rng, row.shape in ("linear", "affine"))
    found += (row.finding, *seen.findings)
    if seen.ordered:
        return ordered(spec, seen, found)
    if spec.outputs is not None:
        diagnosis = yield from layer(spec, norm, known, row, seen, found, rng, room)
        if diagnosis.learner is not None or diagnosis.code in (Code.NO_ATTENTION, Code.POOLED):
            return diagnosis
        return (yield from unexplained(spec, known, seed, diagnosis))
    return (yield from scalar(spec, known, row, seen, found, seed, room))


def _declared(spec: OracleSpec) -> Diagnosis | None:
    """What follows from what the target is said to show, without a query."""
    if spec.shows is not None:
        words = f"The target shows {spec.shows} of the next token, so its output layer is learned."
        return Diagnosis("output layer", learner_of("output layer"), (Finding("access", spec.shows, words),))
    if spec.link is not None and spec.vocabulary is None:
        words = f"The answers are {spec.link} of the model's value and saturate for long tokens."
        reason = "Behind a link only a single head is learned, so it is tried as one."
        learner = learner_of("single head", noisy=True)
        return Diagnosis("single head", learner, (Finding("link", spec.link, words),), (reason,))
    return None


def _answers(spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Answers, float, int]]:
    """First answers, the token norm at which they show something, and the queries left for all that follows."""
    norm = min(1.0, spec.domain.with_room)
    room = allowance(spec) - telling(spec, DIAGNOSIS.observed_vectors, DIAGNOSIS.observed)
    known = yield from answers(spec, norm, rng)
    if spec.kind == "membership" or known.labels:
        return known, norm, room
    for _ in range(2):
        longer = min(norm * DIAGNOSIS.longer, spec.domain.with_room)
        if (known.size > 0 and known.relative_noise <= DIAGNOSIS.drowned) or longer < DIAGNOSIS.worth_longer * norm:
            break
        # Additive noise and rounding are outscaled by longer tokens.
        norm, room = longer, room - QUERIES
        known = yield from answers(spec, norm, rng)
    return known, norm, room


def _unreadable(spec: OracleSpec, known: Answers, found: tuple[Finding, ...]) -> Diagnosis | None:
    """Answers that show nothing: noise alone, or always the same."""
    if known.relative_noise > DIAGNOSIS.hopeless and not known.constant:
        words = "a learner for noisy answers measures the noise itself and may reach further than this diagnosis"
        named = (Suggestion(words, learner_of("single head", noisy=True)),) if spec.outputs is None else ()
        because = "the answers are drowned in noise at the token lengths allowed; raise max_norm if possible"
        return outside(found, "noise", because, *named)
    if known.constant and known.size == 0:
        return Diagnosis("zero", None, found, ("Every sequence asked so far got the answer 0.",), code="zero")
    if known.constant:
        because = "every sequence asked so far got the same answer; a constant shows no parameters"
        return outside(found, "constant", because)
    return None


def _positioned(
    spec: OracleSpec, norm: float, known: Answers, found: tuple[Finding, ...], rng: np.random.Generator, room: int
) -> Asking[Diagnosis]:
    """Order counts: a layer with positions, or a stack under a causal mask."""
    meter = Meter(room)
    layer_of = yield from limited(served(spec, found, rng, room), meter)
    # Under a causal mask a token stands for those before it: the order of a stack counts before x = 0 too.
    if layer_of.learner is not None or ("positions" in layer_of and layer_of["positions"] == "rotary"):
        return layer_of
    row = yield from one_row(spec, norm, known, rng)
    if row.shape not in ("linear", "affine"):
        stack = yield from depth(spec, known, (*found, row.finding), rng, room - meter.used)
        if stack is not None:
            return stack
    return replace(layer_of, findings=(*layer_of.findings, row.finding))


def ordered(spec: OracleSpec, seen: Sequences, found: tuple[Finding, ...]) -> Diagnosis:
    """The order of the tokens before the last matters: the first one answers, or there are positions."""
    if seen.speaks == "first":
        words = "the answer is that of the first token, and the probes put the query token last"
        named = Suggestion("the query token is then put first, where the answer is taken", None, {"position": "first"})
        return outside(found, "first position", words, named)
    if spec.outputs is not None:
        words = (
            "the order of the other tokens changes the answer, and this diagnosis does not tell rotary positions apart"
        )
        named = Suggestion("layers with rotary positions are learned, others refused", learner_of("attention layer"))
        return outside(found, "order", words, named)
    words = "the order of the other tokens changes the answer, and no scalar class here has positions"
    return outside(found, "order", words)


def labels(known: Answers, found: tuple[Finding, ...]) -> Diagnosis:
    """Labels tell too little for a diagnosis of their own."""
    if known.constant:
        return outside(found, "labels", "every sequence asked so far got the same label")
    return Diagnosis(
        "head behind labels",
        learner_of("head behind labels"),
        found,
        ("Labels show only the sign of the answer; they are tried as those of a single head.",),
    )
