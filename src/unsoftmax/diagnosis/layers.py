"""Vector answers: an attention layer, and what stands around it.

Which norm stands before the heads? With one before them, a single vector is answered by P n(x) + constant [+ x].

n(x) is x over its root mean square (RMSNorm) or x off its mean over its deviation (LayerNorm). For z = x + y,
n(z) = a n(x) + b n(y) with a and b known from the vectors alone, and differently for the two norms, so the answers to
x, y, z and -x tell them apart; a network or a norm behind the heads obeys neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.depth import depth
from unsoftmax.diagnosis.findings import Diagnosis, Finding, outside
from unsoftmax.diagnosis.mixing import alike, mixing, neighbours
from unsoftmax.diagnosis.one_row import OneRow
from unsoftmax.diagnosis.sequences import Sequences
from unsoftmax.diagnosis.weights import weights
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.spec import OracleSpec

_BOUNDED = (
    "copies of a token change the answer however long the tokens are, as in no layer here: scores stay bounded (a soft "
    "cap, normed queries and keys, or a head without scores, as in mean pooling), or weights grow slower than "
    "exp(score), as softplus does"
)
"""Why layers of such scores are refused."""

_HIDDEN = (
    "a norm is the last thing before the answer and more than an affine function stands before it: norms behind "
    "several layers or a network (post-norm, as in BERT), or a final norm, hide the length of what heads write, by "
    "which stacks are read"
)
"""Why such targets are refused."""


def _by_format(known: Answers, norm: str | None) -> Any:
    """The learner of a layer with this norm; answers of a shorter format have no digits to spare for conditioning."""
    return learner_of("attention layer", norm=norm, preset=None if known.format == "float64" else "robust")


NORM_QUERIES = 4 * DIAGNOSIS.norm_pairs
"""Queries of `norm_before`: x, y, x + y and -x of every pair."""


def layer(
    spec: OracleSpec,
    norm: float,
    known: Answers,
    row: OneRow,
    seen: Sequences,
    found: tuple[Finding, ...],
    rng: np.random.Generator,
    allowed: int,
) -> Asking[Diagnosis]:
    """An attention layer without a norm, or with one before or behind; else outside, with the law that fails."""
    if not seen.others:
        return outside(found, "no attention", "the other tokens do not matter, so there is no attention to recover")
    if seen.speaks == "all":
        words = (
            "all orders of the tokens are answered alike, as by a mean over positions; give the output before pooling"
        )
        return outside(found, "pooled", words)
    if row.shape in ("linear", "affine"):
        return (yield from _plain(spec, norm, known, found, rng, allowed))
    if row.shape in ("bounded", "normalised"):
        return (yield from _normed(spec, known, row, found, rng, allowed))
    if row.shape == "squashed":
        return (yield from _squashed(spec, known, found, rng))
    stack = yield from depth(spec, known, found, rng, allowed)
    if stack is not None:
        return stack
    if row.degree is None:
        reason = (
            "A single vector is not answered affinely, and whether a norm stands before or behind is told by long "
            f"vectors, which max_norm = {spec.domain.max_norm:g} forbids: the learner looks for it inside the limit."
        )
        return Diagnosis("attention layer", learner_of("attention layer", norm="auto"), found, (reason,))
    words = "a single vector is answered neither affinely nor normalised, as no layer here does"
    return outside(found, "row", words)


def _plain(
    spec: OracleSpec, norm: float, known: Answers, found: tuple[Finding, ...], rng: np.random.Generator, allowed: int
) -> Asking[Diagnosis]:
    law = yield from mixing(spec, norm, known, rng, allowed)
    found += () if law is None else (law,)
    if law is not None and not law.value:
        return outside(found, "law", "small differences of score do not move the answers as softmax does")
    short = yield from alike(spec, norm, known, rng)
    found += () if short is None else (short,)
    if short is not None and not short.value:
        return outside(found, "law", "short tokens, whose scores tie, do not weigh alike as under softmax")
    heavy = yield from weights(spec, known, rng)
    found += () if heavy is None else (heavy,)
    if heavy is not None and heavy.value == "bounded":
        return outside(found, "bounded scores", _BOUNDED)
    found += (Finding("norm", "none", "No normalisation is seen."),)
    return Diagnosis("attention layer", _by_format(known, None), found)


def _normed(
    spec: OracleSpec,
    known: Answers,
    row: OneRow,
    found: tuple[Finding, ...],
    rng: np.random.Generator,
    allowed: int,
) -> Asking[Diagnosis]:
    """The length of a vector does not matter, at least not of a long one: a norm before the heads, or behind them."""
    before = yield from norm_before(spec, known, rng)
    found += () if before is None else (before,)
    kind = None if before is None else before.value
    if kind in ("rms", "layer"):
        near = yield from neighbours(spec, min(1.0, spec.domain.with_room), known, rng)
        found += () if near is None else (near,)
        if near is not None and not near.value:
            return outside(found, "law", "neighbouring tokens, whose scores tie, do not weigh alike as under softmax")
    if kind == "rms":
        found += (Finding("norm", "rms", "An RMSNorm stands before the heads."),)
        return Diagnosis("attention layer", _by_format(known, "rms"), found)
    if kind == "none" and row.shape == "normalised" and row.beside:
        stack = yield from depth(spec, known, found, rng, allowed - NORM_QUERIES)
        if stack is not None:
            return stack
        words = "what stands beside the residual is no linear function behind a norm: a network, or several layers"
        return outside(found, "network", words)
    place = "pre" if kind == "layer" or (kind is None and row.shape == "normalised") else "post"
    affine = (yield from affine_behind(spec, known, rng)) if place == "post" else None
    found += () if affine is None else (affine,)
    if affine is not None and not affine.value:
        return outside(found, "norm behind", _HIDDEN)
    if place == "post" and spec.outputs is not None:
        last = yield from norm_last(spec, known, rng)
        found += (last,)
        if last.evidence["least"] > max(DIAGNOSIS.spanned, CORE.audible * known.relative_noise):
            words = "a norm stands behind the heads and is no LayerNorm, whose answers lie in one plane (an RMSNorm?)"
            return outside(found, "norm behind", words)
        # Behind a norm the shares of long tokens show as they do without one.
        heavy = yield from weights(spec, known, rng)
        found += () if heavy is None else (heavy,)
        if heavy is not None and heavy.value == "bounded":
            return outside(found, "bounded scores", _BOUNDED)
    words = {"pre": "A norm stands before the heads.", "post": "A norm stands behind the heads."}[place]
    found += (Finding("norm", place, words),)
    return Diagnosis("attention layer", learner_of("attention layer", norm="auto"), found)


def _squashed(
    spec: OracleSpec, known: Answers, found: tuple[Finding, ...], rng: np.random.Generator
) -> Asking[Diagnosis]:
    """Long vectors are answered within bounds, about no centre: a norm stands behind the layers, or something else."""
    last = yield from norm_last(spec, known, rng)
    found += (last,)
    if last.value:
        return outside(found, "norm behind", _HIDDEN)
    return outside(found, "row", "a single vector is answered neither affinely nor normalised, as no layer here does")


def norm_before(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """The norm before the heads, "layer" or "rms"; "none" if neither explains one-token answers; None if unclear."""
    length = min(DIAGNOSIS.norm_length * np.sqrt(spec.dim), spec.domain.with_room)
    # A mean as large as the rest: without it the two norms are nearly the same.
    mean = np.full(spec.dim, 1 / np.sqrt(spec.dim)) * rng.choice([-1.0, 1.0], (2, DIAGNOSIS.norm_pairs, 1))
    x, y = (sphere(rng, (DIAGNOSIS.norm_pairs, spec.dim)) + m for m in mean)
    x, y = (t * (length / 2 / np.linalg.norm(t, axis=1, keepdims=True)) for t in (x, y))
    tokens = held(np.concatenate([x, y, x + y, -x]))
    answer = yield Probes(tokens[:, None], phase=PHASE)
    misfits: dict[str, float] = {}
    for name, centred in (("layer", True), ("rms", False)):
        plain = _misfit(tokens, answer, centred)
        beside = _misfit(tokens, answer - tokens, centred) if spec.outputs == spec.dim else np.inf
        misfits[name] = min(plain, beside)
    evidence = {f"misfit of {name} norm": value for name, value in misfits.items()}
    best, other = sorted(misfits, key=lambda name: misfits[name])
    floor = max(DIAGNOSIS.norm_misfit, 100 * known.relative_noise)
    if misfits[best] > floor:
        # With short vectors only, eps would be felt: then nothing is said against a norm.
        if length < DIAGNOSIS.norm_length * np.sqrt(spec.dim) / 8:
            return None
        words = "No norm before the heads explains the answers to single vectors."
        return Finding("norm before", "none", words, evidence=evidence)
    if misfits[other] < DIAGNOSIS.norm_apart * misfits[best] or misfits[other] <= floor:
        return None
    words = {"layer": "as behind a LayerNorm", "rms": "as behind an RMSNorm"}[best]
    return Finding("norm before", best, f"Single vectors are answered {words}.", evidence=evidence)


def _misfit(tokens: Array, answer: Array, centred: bool) -> float:
    """Median over the vectors of what the law n(x + y) = a n(x) + b n(y) leaves, relative to the answers."""
    seen = tokens - tokens.mean(axis=1, keepdims=True) if centred else tokens
    size = np.split(np.linalg.norm(seen, axis=1, keepdims=True), 4)
    gx, gy, gz, gminus = np.split(answer, 4)
    centre = (gx + gminus) / 2
    left = (gz - centre) * size[2] - (gx - centre) * size[0] - (gy - centre) * size[1]
    whole = np.linalg.norm((gx - centre) * size[0], axis=1) + np.linalg.norm((gy - centre) * size[1], axis=1)
    return float(np.median(np.linalg.norm(left, axis=1) / np.maximum(whole, 1e-300)))


def affine_behind(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether single vectors are answered by the norm of an affine function of them, as a layer with its norm behind.

    Then the answers to x, y, z and x + y - z, the norm's shift taken off, are linearly dependent. None where vectors
    may not be long enough to show the shift, the middle of opposite ones.
    """
    if 4 * DIAGNOSIS.norm_far * np.sqrt(spec.dim) > spec.domain.norm_limit or (spec.outputs or 0) <= 4:
        return None
    x = sphere(rng, (DIAGNOSIS.norm_draws, 3, spec.dim)) * np.sqrt(spec.dim)
    x = np.concatenate(
        [x, x[:, :1] + x[:, 1:2] - x[:, 2:], DIAGNOSIS.norm_far * x[:, :1], -DIAGNOSIS.norm_far * x[:, :1]], axis=1
    )
    y = (yield Probes(x.reshape(-1, 1, spec.dim), phase=PHASE)).reshape(DIAGNOSIS.norm_draws, 6, -1)
    s = np.linalg.svd(y[:, :4] - y[:, 4:].mean(axis=1, keepdims=True), compute_uv=False)
    left = float(np.median(s[:, -1] / s[:, 0]))
    holds = left <= max(DIAGNOSIS.norm_misfit, 100 * known.relative_noise)
    words = "Single vectors are answered by the norm of an affine function of them."
    if not holds:
        words = "Single vectors are answered by a norm, and by no affine function before it."
    return Finding("affine before the norm", holds, words, evidence={"left": left})


def norm_last(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding]:
    """Whether a LayerNorm is the last thing: then all answers lie in one hyperplane, whatever stands before it."""
    assert spec.outputs is not None
    length = min(np.sqrt(spec.dim), spec.domain.with_room)
    y = yield Probes(sphere(rng, (spec.outputs + DIAGNOSIS.norm_spare, 1, spec.dim)) * length, phase=PHASE)
    s = np.linalg.svd(y - y.mean(axis=0), compute_uv=False)
    least, next_one = float(s[-1] / s[0]), float(s[-2] / s[0])
    flat = least <= known.tolerance(known.size) < next_one / DIAGNOSIS.norm_apart
    words = "All answers lie in one plane, as behind a LayerNorm." if flat else "The answers span all dimensions."
    return Finding("norm last", flat, words, evidence={"least": least, "second least": next_one})
