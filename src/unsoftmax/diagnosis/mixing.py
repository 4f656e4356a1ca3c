"""The mixing law of softmax attention, for any number of heads and vector answers.

One x1 among k copies of x2 has weight p = 1/(1+k) if scores tie, and a small score gap t moves it by p(1-p) t to first
order. So what is left of the answer after its tied value, E(k), stands to E(1) as 4k/(1+k)^2 to 1, whatever the heads;
and since t is linear in a = x1 - x2, doubling a makes E four times as large. Sparse, hard or kernel attention, two
layers and unnormalised weights do otherwise.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

_COPIES = (1, 3, 7)
"""Copies of the first token: three readings on the way from a half to nearly all of the attention."""

_SCALES = (1.0, 2.0**-3, 2.0**-5, 2.0**-10)
"""Factors by which all tokens are shortened; scores shrink by their squares, so that at one of them the copies' effect
is small and still heard, for weak and for strong W."""

_SMALL = 0.03
"""Share of the gap between two values, by which scores move the answer, that is small enough to be in proportion to
their differences."""

_FINE = 3e-3
"""Share below which that proportion holds to about a percent: such readings are preferred."""

OFF = 0.03
"""How far the law may be off, relative to the effect itself; larger shares are allowed ten times themselves for the
next order."""

MIXING_QUERIES = len(_SCALES) * (3 + len(_COPIES) + 1)
"""Queries of the mixing law: at every scale three tokens alone, a pair for each number of copies, and the pair of the
farther token."""


def mixing(
    spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator, allowed: int
) -> Asking[Finding | None]:
    """Whether small score gaps move the answers as softmax does; None if sequences or noise do not allow to tell."""
    if spec.domain.length_limit < 1 + _COPIES[-1] or allowed < MIXING_QUERIES:
        return None
    x1, x2 = sphere(rng, (2, spec.dim)) * (norm / 2)
    # At most 1.5 norm, which may be more than is allowed.
    x1, x2 = np.array([x1, x2]) * min(1.0, 0.99 * spec.domain.norm_limit / np.linalg.norm(2 * x1 - x2))
    farther = 2 * x1 - x2
    scale = np.array(_SCALES)[:, None, None]
    alone = yield Probes((np.stack([x1, x2, farther]) * scale).reshape(-1, 1, spec.dim), phase=PHASE)
    pairs = np.stack([np.stack([x1, x2])] * len(_COPIES) + [np.stack([farther, x2])])
    counts = np.array([[1, k] for k in (*_COPIES, 1)])
    tokens = (pairs * scale[..., None]).reshape(-1, 2, spec.dim)
    mixed = yield Probes(tokens, np.tile(counts, (len(_SCALES), 1)), phase=PHASE)
    width = spec.outputs or 1
    alone, mixed = alone.reshape(len(_SCALES), 3, width), mixed.reshape(len(_SCALES), len(counts), width)
    plain = _judged(alone, mixed, known)
    if width != spec.dim or plain is None or plain.value:
        return plain
    # With a residual around the attention every answer has its last token added: the law holds without it.
    tokens_alone = np.stack([x1, x2, farther]) * scale
    beside = _judged(alone - tokens_alone, mixed - tokens_alone[:, 1:2], known)
    return beside if beside is not None and beside.value else plain


def _judged(alone: Array, mixed: Array, known: Answers) -> Finding | None:
    k = np.array(_COPIES, dtype=float)[:, None]
    near, base, far = alone[:, :1], alone[:, 1:2], alone[:, 2:]
    gap = near - base
    left = mixed[:, :-1] - base - gap / (1 + k)
    left_far = mixed[:, -1:] - base - (far - base) / 2
    size = np.linalg.norm(left[:, 0], axis=1)
    share = size / np.maximum(np.linalg.norm(gap[:, 0], axis=1), 1e-300)
    audible = size > 100 * known.noise * np.sqrt(left.shape[2])
    evidence = {"share at the smallest scale": float(share[-1])}
    if audible[-1] and share[-1] > 0.5 * share[0] and share[-1] > _SMALL:
        words = "Scores do not tie however short the tokens are, as they would under softmax."
        return Finding("mixing law", False, words, evidence=evidence)
    readable = (share < _SMALL) & audible
    if not readable.any():
        return None
    # A larger share means less noise and a larger second-order part: take the largest of the small ones, if any.
    fine = readable & (share < _FINE)
    best = int(np.argmax(np.where(fine if fine.any() else readable, share, -1.0)))
    wanted = (4 * k / (1 + k) ** 2) * left[best, :1]
    off = float(np.linalg.norm(left[best] - wanted) / size[best])
    doubled = float(np.linalg.norm(left_far[best] - 4 * left[best, :1]) / size[best] / 4)
    holds = max(off, doubled) <= max(OFF, 10 * float(share[best]))
    words = "move the answers as softmax does" if holds else "do not move the answers as softmax does"
    evidence |= {"off in copies": off, "off in doubling": doubled, "share": float(share[best])}
    return Finding("mixing law", holds, f"Small differences of score {words}.", evidence=evidence)


_SHORT = 2.0**-12
"""Scale at which scores tie: an offset of norm 10 still parts them by less than a percent."""

_SEQUENCES = 3
"""Sequences of short tokens that are compared with the mean of their tokens' answers."""

_DISTINCT = 6
"""Different tokens in each of them: attention to the best few leaves some of six out."""

_UNEQUAL = 0.03
"""Share of the values' spread by which answers to short tokens may be off their mean: three times the percent that an
offset of norm 10 leaves at this scale."""

_UNHEARD = 0.3
"""Share of the values' spread that 20 deviations of noise must not reach: above it nothing is said about the
weights."""

ALIKE_QUERIES = _SEQUENCES * (1 + _DISTINCT)
"""Queries of `alike`: each sequence, and each of its tokens alone."""


def alike(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether short tokens weigh alike, six different ones at a time: attention to the best few does otherwise."""
    if spec.domain.length_limit < _DISTINCT:
        return None
    X = sphere(rng, (_SEQUENCES, _DISTINCT, spec.dim)) * (norm * _SHORT)
    together = yield Probes(X, phase=PHASE)
    single = yield Probes(X.reshape(-1, 1, spec.dim), phase=PHASE)
    values = single.reshape(_SEQUENCES, _DISTINCT, -1)
    mean = values.mean(axis=1)
    off = together.reshape(mean.shape) - mean
    size = float(np.sqrt(np.mean((values - mean[:, None]) ** 2))) or 1.0
    gaps = [float(np.sqrt(np.mean(off**2))) / size]
    if spec.outputs == spec.dim:
        # With a residual it is the last token that is added, not the mean.
        gaps.append(float(np.sqrt(np.mean((off - X[:, -1] + X.mean(axis=1)) ** 2))) / size)
    floor = max(_UNEQUAL, 20 * known.noise / size)
    if floor > _UNHEARD:
        return None
    holds = min(gaps) <= floor
    words = "Short tokens weigh alike." if holds else "Short tokens do not weigh alike."
    return Finding("short tokens", holds, words, evidence={"off their mean": min(gaps), "allowed": floor})
