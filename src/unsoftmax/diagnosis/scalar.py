"""One number per sequence: a function of the last token, one head or several, another kernel, a network behind.

Is it one head with another kernel than the exponential? The learner's reading and table, on a few dimensions.

Is it several softmax heads, and how many?
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion, outside
from unsoftmax.diagnosis.mixing import ALIKE_QUERIES, MIXING_QUERIES, alike, heard_mixing, unexplained
from unsoftmax.diagnosis.one_row import OneRow
from unsoftmax.diagnosis.sequences import Sequences
from unsoftmax.diagnosis.single import Trial, near, single_head, why
from unsoftmax.diagnosis.sketch import attempt, said, sketch
from unsoftmax.diagnosis.weights import WEIGHT_QUERIES, weights
from unsoftmax.errors import Code
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import announced
from unsoftmax.learners.heads.ground import read_ground
from unsoftmax.learners.heads.saturation import discover
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.learners.kernel.first_look import zero_at_zero
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.spec import OracleSpec
from unsoftmax.theory import low_rank_queries
from unsoftmax.verify import heads

_AFFINE_DIMENSIONS = {4: 0, 6: 600, 14: 2400}
"""Dimensions in which heads with affine terms are learned, and the queries from which on they are tried. Four heads in
four dimensions take a thousand queries and are parted half of the time; in six they take 400 and always are."""

LAW_QUERIES = MIXING_QUERIES + WEIGHT_QUERIES + ALIKE_QUERIES
"""Kept for the laws that all sums of softmax heads obey."""


def several_heads(spec: OracleSpec, known: Answers, affine: bool, seed: int, allowed: int) -> Asking[Trial]:
    """Count the heads by their jumps, then try the learner where there are more dimensions than heads."""
    if affine:
        return (yield from _affine_heads(spec, known, seed, allowed))
    if spec.domain.max_norm is not None or spec.domain.length_limit < 3:
        return (yield from _bounded_heads(spec, known, seed, allowed))
    learner = learner_of("multi-head attention")
    count, queries, refusal = yield from attempt(
        _count, DIAGNOSIS.several_dimensions, spec, seed, allowed - LAW_QUERIES
    )
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
            return Trial("", None, (finding,), queries, why(trial), near=near(trial, learner), jumps=count)
    found = Finding("heads", count, f"{count} softmax heads are seen.", evidence=evidence)
    return Trial("multi-head attention", learner, (found,), queries)


def _bounded_heads(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[Trial]:
    """Inside a norm limit, where tokens are too short for jumps: the learner counts by a fit, in a few dimensions.

    Where it cannot be tried at all, its refusal says so.
    """
    learner = learner_of("multi-head attention")
    k = min(spec.dim, DIAGNOSIS.sketch_dimensions)
    trial = yield from sketch(learner, k, spec, seed, allowed - LAW_QUERIES)
    evidence = {"dimensions": k, "queries": trial.queries, "gap": trial.gap}
    if not trial.explains(known.relative_noise) or not isinstance(trial.model, MultiHead) or trial.model.heads < 2:
        untried = trial.refusal is not None and trial.refusal.code is Code.DOMAIN
        words = "were not tried" if untried else "do not explain the answers"
        finding = Finding(
            "several heads", None if untried else False, f"Several softmax heads {words}.", None, evidence
        )
        return Trial("", None, (finding,), trial.queries, why(trial), near=near(trial, learner))
    count = trial.model.heads
    found = Finding("heads", count, f"{count} softmax heads explain the answers.", evidence=evidence)
    return Trial("multi-head attention", learner, (found,), trial.queries)


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


def other_kernel(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[Trial]:
    """Weights kappa(s) of any positive, monotone kappa, divided by their sum or not; the kernel is named."""
    learner = learner_of("kernel head")
    trial = yield from sketch(learner, DIAGNOSIS.kernel_dimensions, spec, seed, allowed)
    evidence = {
        "dimensions": DIAGNOSIS.kernel_dimensions,
        "queries": trial.queries,
        "gap": trial.gap,
        "reason": trial.reason,
    }
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


_NEARLY = "its sketch was near or unfinished; the learner itself asks more and says why if it does not fit"
"""Why a learner is named where none was chosen."""


def scalar(
    spec: OracleSpec, known: Answers, row: OneRow, seen: Sequences, found: tuple[Finding, ...], seed: int, room: int
) -> Asking[Diagnosis]:
    """One number per sequence: by how a single vector is answered."""
    if not seen.others:
        return alone(row, found)
    if row.shape in ("linear", "affine"):
        return (yield from attention(spec, known, row, seen, found, seed, room))
    if row.shape in ("homogeneous", "piecewise linear", "smooth"):
        return (yield from network(spec, known, row, found, seed, room))
    words = f"a single vector is answered in a {row.shape} way, and no scalar class here does that"
    return outside(found, "row", words, *_links(known))


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
    one = yield from announced(single_head(spec, known, affine or row.faint, seed, allowed), least)
    found += one.findings
    if one.learner is not None:
        return Diagnosis(one.family, one.learner, found, one.reasons)
    left = allowed - one.queries
    # Weights of 0 at a score of 0 look like affine terms: two queries tell before several heads spend what is left.
    shown = affine and spec.domain.length_limit >= 3
    vanishing = shown and (yield from zero_at_zero(spec, np.random.default_rng([seed, 0x3B]), "diagnosis"))
    if vanishing:
        kernel = yield from other_kernel(spec, known, seed, left - KERNEL.most_looks)
        found, left = found + kernel.findings, left - KERNEL.most_looks - kernel.queries
        if kernel.learner is not None:
            return Diagnosis(kernel.family, kernel.learner, found)
    # Several heads leave room for another kernel where none of both is affine.
    other = not affine and spec.domain.norm_limit >= KERNEL.least_norm_limit
    many = yield from several_heads(spec, known, affine, seed, left - DIAGNOSIS.kernel_queries if other else left)
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
        words = (
            "copies of a token change the answer however long the tokens are, as with no head here: scores stay "
            "bounded, or weights grow slower than exp(score)"
        )
        return outside(found, "bounded scores", words)
    # Inside a norm limit, where no other kernel can be tried, laws of short tokens alone name no class.
    if seen.speaks == "all" or (not affine and spec.domain.max_norm is not None):
        return (yield from _no_heads(spec, known, (one, many), seen, found, seed))
    if not laws and many.near is not None and many.jumps > 1 and known.relative_noise > SHORT_FORMAT:
        words = "Their jumps are those of softmax heads; noise hides what else tells, and all dimensions are asked."
        return Diagnosis("multi-head attention", many.near, found, (words,))
    obeyed = bool(laws) and all(law.value in (True, "free") for law in laws)
    if obeyed and many.near is not None:
        words = "Sums of softmax heads mix so; they are proportional, or too many to be parted in a few dimensions."
        return Diagnosis("multi-head attention", many.near, found, (words,))
    if obeyed and one.near is not None:
        words = "A softmax head mixes so; a few dimensions were near it, and all of them are asked."
        return Diagnosis("affine head" if affine else "single head", one.near, found, (words,))
    return (yield from _no_heads(spec, known, (one, many), seen, found, seed))


def _laws(spec: OracleSpec, known: Answers, seed: int, allowed: int) -> Asking[tuple[Finding, ...]]:
    """What every sum of softmax heads obeys: how small scores mix, and that long tokens leave the weight to one."""
    norm = min(1.0, spec.domain.with_room)
    rng = np.random.default_rng([seed, 0x3A])
    mixed = yield from heard_mixing(spec, norm, known, rng, allowed, allowed - LAW_QUERIES)
    if mixed is None or not mixed.value:
        return () if mixed is None else (mixed,)
    short = yield from alike(spec, norm, known, rng)
    heavy = yield from weights(spec, known, rng)
    return tuple(law for law in (mixed, short, heavy) if law is not None)


def _no_heads(
    spec: OracleSpec, known: Answers, tried: tuple[Trial, Trial], seen: Sequences, found: tuple[Finding, ...], seed: int
) -> Asking[Diagnosis]:
    if seen.speaks == "all":
        words = (
            "all orders of the tokens are answered alike, as by a mean over positions; give the output before pooling"
        )
        return outside(found, "pooled", words)
    one, many = tried
    words = f"neither one softmax head ({one.reason}) nor several ({many.reason}) explain the answers"
    named = [Suggestion(_NEARLY, trial.near) for trial in tried if trial.near is not None]
    return (yield from unexplained(spec, known, seed, outside(found, "heads", words, *named)))


def network(
    spec: OracleSpec,
    known: Answers,
    row: OneRow,
    found: tuple[Finding, ...],
    seed: int,
    allowed: int,
) -> Asking[Diagnosis]:
    """A network behind: its attention is read by rays on a subspace and held against fresh rays."""
    behind = learner_of("attention behind a network")
    trial = yield from sketch(behind, 4, spec, seed, allowed)
    evidence = {"queries": trial.queries, "gap": trial.gap, "reason": trial.reason}
    if not trial.explains(known.relative_noise):
        words = "A softmax head before a network does not explain the answers."
        found += (Finding("attention behind a network", False, words, evidence=evidence),)
        kernel = yield from other_kernel(spec, known, seed, allowed - trial.queries)
        found += kernel.findings
        if kernel.learner is not None:
            return Diagnosis(kernel.family, kernel.learner, found)
        why = trial.reason or "fresh sequences contradict what was learned along rays"
        words = f"attention before a network does not explain the answers: {why.rstrip('.')}"
        named = (Suggestion(_NEARLY, behind),) if near(trial, behind) is not None else ()
        return (yield from unexplained(spec, known, seed, outside(found, "network", words, *named)))
    words = "Softmax attention before a function of its output and of the last token explains the answers."
    found += (Finding("attention behind a network", True, words, evidence=evidence),)
    if row.shape == "smooth":
        return Diagnosis("attention behind a network", behind, found)
    return Diagnosis("transformer", learner_of("transformer"), found)


def _links(known: Answers) -> list[Suggestion]:
    """Links whose range holds every answer seen."""
    low, high = float(known.seen.min()), float(known.seen.max())
    if low < -1 or high > 1:
        return []
    name = "sigmoid" if low >= 0 else "tanh"
    return [Suggestion(f"every answer lies in the range of {name}, which is undone if declared", None, {"link": name})]
