"""Vector answers: an attention layer, and what stands around it."""

from __future__ import annotations

import numpy as np

from unsoftmax.diagnosis.answers import Answers
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.depth import depth
from unsoftmax.diagnosis.findings import Diagnosis, Finding, outside
from unsoftmax.diagnosis.mixing import alike, mixing
from unsoftmax.diagnosis.norms import NORM_QUERIES, affine_behind, norm_before, norm_last
from unsoftmax.diagnosis.one_row import OneRow
from unsoftmax.diagnosis.sequences import Sequences
from unsoftmax.diagnosis.weights import weights
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.noise import AUDIBLE
from unsoftmax.spec import OracleSpec

_HIDDEN = (
    "a norm is the last thing before the answer and more than an affine function stands before it: norms behind "
    "several layers or a network (post-norm, as in BERT), or a final norm, hide the length of what heads write, by "
    "which stacks are read"
)
"""Why such targets are refused."""


_SPANNED = 1e-6
"""Least singular value of the answers to single vectors, relative to the largest, above which they span everything:
behind a LayerNorm only rounding is left of it, behind other norms a share of order 1 / d."""


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
    stack = yield from depth(spec, found, rng, allowed)
    if stack is not None:
        return stack
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
        words = "scores stay bounded however long the tokens are (a soft cap, or normed queries and keys)"
        return outside(found, "bounded scores", f"{words}, as no layer here has them")
    found += (Finding("norm", "none", "No normalisation is seen."),)
    return Diagnosis("attention layer", learner_of("attention layer", norm=None), found)


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
    if kind == "rms":
        found += (Finding("norm", "rms", "An RMSNorm stands before the heads."),)
        return Diagnosis("attention layer", learner_of("attention layer", norm="rms"), found)
    if kind == "none" and row.shape == "normalised" and row.beside:
        stack = yield from depth(spec, found, rng, allowed - NORM_QUERIES)
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
        if last.evidence["least"] > max(_SPANNED, AUDIBLE * known.relative_noise):
            words = "a norm stands behind the heads and is no LayerNorm, whose answers lie in one plane (an RMSNorm?)"
            return outside(found, "norm behind", words)
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
