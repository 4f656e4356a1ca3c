"""Which norm stands before the heads? With one before them, a single vector is answered by P n(x) + constant [+ x].

n(x) is x over its root mean square (RMSNorm) or x off its mean over its deviation (LayerNorm). For z = x + y,
n(z) = a n(x) + b n(y) with a and b known from the vectors alone, and differently for the two norms, so the answers to
x, y, z and -x tell them apart; a network or a norm behind the heads obeys neither.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

_VECTORS = 4
"""Pairs of random vectors x, y: each norm has to explain the answers at x, y, x + y and -x of all of them."""

_LENGTH = 8.0
"""Root mean square of the vectors: an eps of 1e-5 inside the norm is then 1e-7 of it, and a residual 8 times as large
as what the heads write takes one digit."""

_FITS = 1e-3
"""Relative misfit up to which a norm explains the answers; a hundred times the relative noise, if that is more."""

_APART = 10.0
"""How many times worse the other norm must do before the better one is named."""

NORM_QUERIES = 4 * _VECTORS
"""Queries of `norm_before`: x, y, x + y and -x of every pair."""


def norm_before(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """The norm before the heads, "layer" or "rms"; "none" if neither explains one-token answers; None if unclear."""
    length = min(_LENGTH * np.sqrt(spec.dim), 0.9 * spec.domain.norm_limit)
    # A mean as large as the rest: without it the two norms are nearly the same.
    mean = np.full(spec.dim, 1 / np.sqrt(spec.dim)) * rng.choice([-1.0, 1.0], (2, _VECTORS, 1))
    x, y = (sphere(rng, (_VECTORS, spec.dim)) + m for m in mean)
    x, y = (t * (length / 2 / np.linalg.norm(t, axis=1, keepdims=True)) for t in (x, y))
    tokens = np.concatenate([x, y, x + y, -x]).astype(np.float32).astype(np.float64)
    answer = yield Probes(tokens[:, None], phase=PHASE)
    misfits: dict[str, float] = {}
    for name, centred in (("layer", True), ("rms", False)):
        plain = _misfit(tokens, answer, centred)
        beside = _misfit(tokens, answer - tokens, centred) if spec.outputs == spec.dim else np.inf
        misfits[name] = min(plain, beside)
    evidence = {f"misfit of {name} norm": value for name, value in misfits.items()}
    best, other = sorted(misfits, key=lambda name: misfits[name])
    floor = max(_FITS, 100 * known.relative_noise)
    if misfits[best] > floor:
        # With short vectors only, eps would be felt: then nothing is said against a norm.
        if length < _LENGTH * np.sqrt(spec.dim) / 8:
            return None
        words = "No norm before the heads explains the answers to single vectors."
        return Finding("norm before", "none", words, evidence=evidence)
    if misfits[other] < _APART * misfits[best] or misfits[other] <= floor:
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


_DRAWS = 3
"""Draws of four vectors, whose median decides."""

_FAR = 2.0**20
"""How much longer the vectors are that show the norm's shift: what is added to them is then below float32."""


def affine_behind(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether single vectors are answered by the norm of an affine function of them, as a layer with its norm behind.

    Then the answers to x, y, z and x + y - z, the norm's shift taken off, are linearly dependent. None where vectors
    may not be long enough to show the shift, the middle of opposite ones.
    """
    if 4 * _FAR * np.sqrt(spec.dim) > spec.domain.norm_limit or (spec.outputs or 0) <= 4:
        return None
    x = sphere(rng, (_DRAWS, 3, spec.dim)) * np.sqrt(spec.dim)
    x = np.concatenate([x, x[:, :1] + x[:, 1:2] - x[:, 2:], _FAR * x[:, :1], -_FAR * x[:, :1]], axis=1)
    y = (yield Probes(x.reshape(-1, 1, spec.dim), phase=PHASE)).reshape(_DRAWS, 6, -1)
    s = np.linalg.svd(y[:, :4] - y[:, 4:].mean(axis=1, keepdims=True), compute_uv=False)
    left = float(np.median(s[:, -1] / s[:, 0]))
    holds = left <= max(_FITS, 100 * known.relative_noise)
    words = "Single vectors are answered by the norm of an affine function of them."
    if not holds:
        words = "Single vectors are answered by a norm, and by no affine function before it."
    return Finding("affine before the norm", holds, words, evidence={"left": left})


_SPARE = 2
"""Vectors beyond the outputs, so that answers in general position span everything."""


def norm_last(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Finding]:
    """Whether a LayerNorm is the last thing: then all answers lie in one hyperplane, whatever stands before it."""
    assert spec.outputs is not None
    length = min(np.sqrt(spec.dim), 0.9 * spec.domain.norm_limit)
    y = yield Probes(sphere(rng, (spec.outputs + _SPARE, 1, spec.dim)) * length, phase=PHASE)
    s = np.linalg.svd(y - y.mean(axis=0), compute_uv=False)
    least, next_one = float(s[-1] / s[0]), float(s[-2] / s[0])
    flat = least <= known.tolerance(known.size) < next_one / _APART
    words = "All answers lie in one plane, as behind a LayerNorm." if flat else "The answers span all dimensions."
    return Finding("norm last", flat, words, evidence={"least": least, "second least": next_one})
