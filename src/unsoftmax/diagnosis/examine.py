"""The diagnosis as a program: a few observations, then a sketch of the class they point to."""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.diagnosis.answers import QUERIES, Answers, answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.depth import depth
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion
from unsoftmax.diagnosis.kernels import KERNEL_QUERIES, other_kernel
from unsoftmax.diagnosis.layers import layer
from unsoftmax.diagnosis.mixing import alike, mixing
from unsoftmax.diagnosis.one_row import OneRow, one_row
from unsoftmax.diagnosis.sequences import Sequences, sequences
from unsoftmax.diagnosis.served import served
from unsoftmax.diagnosis.several import LAW_QUERIES, several_heads
from unsoftmax.diagnosis.single import Trial, single_head
from unsoftmax.diagnosis.sketch import Meter, limited, sketch
from unsoftmax.diagnosis.tokens import over_tokens
from unsoftmax.diagnosis.weights import weights
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import announced, as_values, only_values
from unsoftmax.learners.kernel.first_look import LOOKS, zero_at_zero
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.theory import low_rank_queries
from unsoftmax.verify import heads

_DROWNED = 1e-3
"""Noise over size from which on longer tokens are tried."""

_HOPELESS = 0.02
"""Noise over size beyond which no observation says anything."""

_LONGER = 1e3
"""Factor by which tokens are made longer at once, up to the norm limit: additive noise falls by three digits beside the
answers."""

_WORTH = 1.5
"""Least factor, where the norm limit allows no more, for which asking everything again with longer tokens is worth its
queries."""

_OBSERVED = 109
"""Queries of the observations and of the input limits, at most."""


def allowance(spec: OracleSpec) -> int:
    """Most queries a diagnosis asks: 460 + 6 d for scalar answers, 190 + 4 d for vectors."""
    return 460 + 6 * spec.dim if spec.outputs is None else 190 + 4 * spec.dim


def examine(spec: OracleSpec, seed: int) -> Asking[Diagnosis]:
    """Observe, choose a class, try it on a subspace; "outside" with the failed assumption if nothing fits."""
    if spec.kind in EXPLAINED:
        return (yield from only_values(examine(as_values(spec), seed)))
    if spec.shows is not None:
        words = f"The target shows {spec.shows} of the next token, so its output layer is learned."
        return Diagnosis("output layer", learner_of("output layer"), (Finding("access", spec.shows, words),))
    if spec.vocabulary is not None:
        return (yield from over_tokens(spec, seed))
    rng = np.random.default_rng([seed, 0xD1A6])
    norm = min(1.0, 0.9 * spec.domain.norm_limit)
    if spec.link is not None:
        words = f"The answers are {spec.link} of the model's value and saturate for long tokens."
        reason = "Behind a link only a single head is learned, so it is tried as one."
        return Diagnosis(
            "single head", learner_of("single head", noisy=True), (Finding("link", spec.link, words),), (reason,)
        )
    known = yield from answers(spec, norm, rng)
    if spec.kind == "membership" or known.labels:
        return labels(spec, known, tuple(known.findings(spec)))
    room = allowance(spec) - _OBSERVED
    for _ in range(2):
        longer = min(norm * _LONGER, 0.9 * spec.domain.norm_limit)
        if (known.size > 0 and known.relative_noise <= _DROWNED) or longer < _WORTH * norm:
            break
        # Additive noise and rounding are outscaled by longer tokens.
        norm, room = longer, room - QUERIES
        known = yield from answers(spec, norm, rng)
    found = tuple(known.findings(spec))
    hopeless = _unreadable(spec, known, found)
    if hopeless is not None:
        return hopeless
    row = yield from one_row(spec, norm, known, rng)
    seen = yield from sequences(spec, norm, known, rng, row.shape in ("linear", "affine"))
    found += (row.finding, *seen.findings)
    if seen.ordered and seen.speaks != "first" and spec.outputs is not None and spec.domain.length_limit > 2:
        return (yield from _positioned(spec, row, found, rng, room))
    if seen.ordered:
        return ordered(spec, seen, found)
    if spec.outputs is not None:
        return (yield from layer(spec, norm, known, row, seen, found, rng, room))
    if not seen.others:
        return alone(row, found)
    if row.shape in ("linear", "affine"):
        return (yield from attention(spec, known, row, seen, found, seed, room))
    if row.shape in ("homogeneous", "piecewise linear", "smooth"):
        return (yield from network(spec, known, row, seen, found, seed, room))
    words = f"a single vector is answered in a {row.shape} way, and no scalar class here does that"
    return outside(found, "row", words, *_links(known))


def _unreadable(spec: OracleSpec, known: Answers, found: tuple[Finding, ...]) -> Diagnosis | None:
    """Answers that show nothing: noise alone, or always the same."""
    if known.relative_noise > _HOPELESS and not known.constant:
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
    spec: OracleSpec, row: OneRow, found: tuple[Finding, ...], rng: np.random.Generator, room: int
) -> Asking[Diagnosis]:
    """Order counts: a layer with positions, or a stack under a causal mask."""
    meter = Meter(room)
    layer_of = yield from limited(served(spec, found, rng, room), meter)
    if layer_of.learner is None and row.shape not in ("linear", "affine"):
        stack = yield from depth(spec, found, rng, room - meter.used)
        if stack is not None:
            return stack
    return layer_of


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


def _links(known: Answers) -> list[Suggestion]:
    """Links whose range holds every answer seen."""
    low, high = float(known.seen.min()), float(known.seen.max())
    if low < -1 or high > 1:
        return []
    name = "sigmoid" if low >= 0 else "tanh"
    return [Suggestion(f"every answer lies in the range of {name}, which is undone if declared", None, {"link": name})]


def outside(found: tuple[Finding, ...], code: str, because: str, *suggestions: Suggestion) -> Diagnosis:
    """No learner fits."""
    return Diagnosis("outside", None, found, (f"No learner is chosen: {because}.",), code=code, suggestions=suggestions)


def labels(spec: OracleSpec, known: Answers, found: tuple[Finding, ...]) -> Diagnosis:
    """Labels tell too little for a diagnosis of their own."""
    if known.constant:
        return outside(found, "labels", "every sequence asked so far got the same label")
    return Diagnosis(
        "head behind labels",
        learner_of("head behind labels"),
        found,
        ("Labels show only the sign of the answer; they are tried as those of a single head.",),
    )


def alone(row: OneRow, found: tuple[Finding, ...]) -> Diagnosis:
    """The other tokens do not matter: a function of the last one."""
    if row.shape in ("linear", "homogeneous"):
        return Diagnosis("ReLU network", learner_of("ReLU network"), found)
    if row.shape in ("affine", "piecewise linear"):
        return Diagnosis("ReLU network", learner_of("ReLU network", bias=True), found)
    return outside(found, "no attention", "only the last token matters and it is not answered piecewise linearly")


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
    least = low_rank_queries(spec.dim, 1) + heads.count(spec, (0, 0))[0]
    one = yield from announced(single_head(spec, known, affine, seed, allowed), least)
    found += one.findings
    if one.learner is not None:
        return Diagnosis(one.family, one.learner, found, one.reasons)
    left = allowed - one.queries
    # Weights of 0 at a score of 0 look like affine terms: two queries tell before several heads spend what is left.
    vanishing = affine and (yield from zero_at_zero(spec, np.random.default_rng([seed, 0x3B]), "diagnosis"))
    if vanishing:
        kernel = yield from other_kernel(spec, known, seed, left - LOOKS)
        found, left = found + kernel.findings, left - LOOKS - kernel.queries
        if kernel.learner is not None:
            return Diagnosis(kernel.family, kernel.learner, found)
    # Several heads leave room for another kernel where none of both is affine.
    many = yield from several_heads(spec, known, affine, seed, left if affine else left - KERNEL_QUERIES)
    found += many.findings
    if many.learner is not None:
        return Diagnosis(many.family, many.learner, found, many.reasons)
    left -= many.queries
    if not affine:
        kernel = yield from other_kernel(spec, known, seed, left - LAW_QUERIES)
        found, left = found + kernel.findings, left - kernel.queries
        if kernel.learner is not None:
            return Diagnosis(kernel.family, kernel.learner, found)
    laws = yield from _laws(spec, known, seed, left)
    found += laws
    if any(law.value == "bounded" for law in laws):
        return outside(found, "bounded scores", "scores stay bounded however long the tokens are, as no head's here do")
    if many.near is not None and seen.speaks != "all" and laws and all(law.value in (True, "free") for law in laws):
        words = "Sums of softmax heads mix so; they are proportional, or too many to be parted in a few dimensions."
        return Diagnosis("multi-head attention", many.near, found, (words,))
    return _no_heads(one, many, seen, found)


def _laws(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[tuple[Finding, ...]]:
    """What every sum of softmax heads obeys: how small scores mix, and that long tokens leave the weight to one."""
    norm = min(1.0, 0.9 * spec.domain.norm_limit)
    rng = np.random.default_rng([seed, 0x3A])
    mixed = yield from mixing(spec, norm, known, rng, allowed)
    if mixed is None or not mixed.value:
        return () if mixed is None else (mixed,)
    short = yield from alike(spec, norm, known, rng)
    heavy = yield from weights(spec, known, rng)
    return tuple(law for law in (mixed, short, heavy) if law is not None)


def _no_heads(one: Trial, many: Trial, seen: Sequences, found: tuple[Finding, ...]) -> Diagnosis:
    if seen.speaks == "all":
        words = (
            "all orders of the tokens are answered alike, as by a mean over positions; give the output before pooling"
        )
        return outside(found, "pooled", words)
    words = f"neither one softmax head ({one.reason}) nor several ({many.reason}) explain the answers"
    named: list[Any] = [trial.near for trial in (one, many) if trial.near is not None]
    because = "its sketch was near or unfinished; the learner itself asks more and says why if it does not fit"
    return outside(found, "heads", words, *(Suggestion(because, learner) for learner in named))


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
    trial = yield from sketch(learner_of("attention behind a network"), 4, spec, seed, allowed)
    evidence = {"queries": trial.queries, "gap": trial.gap, "reason": trial.reason}
    if not trial.explains(known.relative_noise):
        words = "A softmax head before a network does not explain the answers."
        found += (Finding("attention behind a network", False, words, evidence=evidence),)
        kernel = yield from other_kernel(spec, known, seed, allowed - trial.queries)
        found += kernel.findings
        if kernel.learner is not None:
            return Diagnosis(kernel.family, kernel.learner, found)
        why = trial.reason or "fresh rays contradict what was learned on others"
        return outside(found, "network", f"attention before a network does not explain the answers: {why.rstrip('.')}")
    words = "A softmax head before a function of its output explains the answers."
    found += (Finding("attention behind a network", True, words, evidence=evidence),)
    if row.shape == "smooth":
        return Diagnosis("attention behind a network", learner_of("attention behind a network"), found)
    return Diagnosis("transformer", learner_of("transformer"), found)
