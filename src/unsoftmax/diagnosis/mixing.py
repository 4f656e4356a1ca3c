"""The mixing law of softmax attention, for any number of heads and vector answers.

One x1 among k copies of x2 has weight p = 1/(1+k) if scores tie, and a small score gap t moves it by p(1-p) t to first
order. So what is left of the answer after its tied value, E(k), stands to E(1) as 4k/(1+k)^2 to 1, whatever the heads;
and since t is linear in a = x1 - x2, doubling a makes E four times as large. Sparse, hard or kernel attention, two
layers and unnormalised weights do otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.diagnosis.answers import PHASE, Answers, sphere
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Diagnosis, Finding, outside
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.law import copies_count, in_copies
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

MIXING_QUERIES = len(DIAGNOSIS.scales) * (3 + len(DIAGNOSIS.copies) + 1)
"""Queries of the mixing law: at every scale three tokens alone, a pair for each number of copies, and the pair of the
farther token."""


def mixing(
    spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator, allowed: int
) -> Asking[Finding | None]:
    """Whether small score gaps move the answers as softmax does; None if sequences or noise do not allow to tell."""
    if spec.domain.length_limit < 1 + DIAGNOSIS.copies[-1] or allowed < MIXING_QUERIES:
        return None
    x1, x2 = sphere(rng, (2, spec.dim)) * (norm / 2)
    # At most 1.5 norm, which may be more than is allowed.
    x1, x2 = np.array([x1, x2]) * min(1.0, spec.domain.inside / np.linalg.norm(2 * x1 - x2))
    farther = 2 * x1 - x2
    scale = np.array(DIAGNOSIS.scales)[:, None, None]
    alone = yield Probes((np.stack([x1, x2, farther]) * scale).reshape(-1, 1, spec.dim), phase=PHASE)
    pairs = np.stack([np.stack([x1, x2])] * len(DIAGNOSIS.copies) + [np.stack([farther, x2])])
    counts = np.array([[1, k] for k in (*DIAGNOSIS.copies, 1)])
    tokens = (pairs * scale[..., None]).reshape(-1, 2, spec.dim)
    mixed = yield Probes(tokens, np.tile(counts, (len(DIAGNOSIS.scales), 1)), phase=PHASE)
    width = spec.outputs or 1
    alone, mixed = (
        alone.reshape(len(DIAGNOSIS.scales), 3, width),
        mixed.reshape(len(DIAGNOSIS.scales), len(counts), width),
    )
    plain = _judged(alone, mixed, known)
    if width != spec.dim or plain is None or plain.value:
        return plain
    # With a residual around the attention every answer has its last token added: the law holds without it. Where
    # nothing is heard without it, rounding hides what small scores move; of no residual the token itself would be.
    tokens_alone = np.stack([x1, x2, farther]) * scale
    beside = _judged(alone - tokens_alone, mixed - tokens_alone[:, 1:2], known)
    return plain if beside is not None and not beside.value else beside


def heard_mixing(
    spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator, allowed: int, spare: int
) -> Asking[Finding | None]:
    """`mixing`, and while nothing is heard again with longer tokens, if the domain and `spare` queries allow them.

    What small scores move grows with the cube of the length, noise with the answers at most. Strong scores hardly tie
    there: only a law that holds counts.
    """
    mixed = yield from mixing(spec, norm, known, rng, allowed)
    for factor in DIAGNOSIS.louder:
        if mixed is not None or factor * norm > spec.domain.with_room or spare < MIXING_QUERIES:
            break
        louder = replace(known, noise=factor * known.noise, size=factor * known.size)
        mixed, spare = (yield from mixing(spec, factor * norm, louder, rng, spare)), spare - MIXING_QUERIES
        mixed = mixed if mixed is not None and mixed.value else None
    return mixed


def _judged(alone: Array, mixed: Array, known: Answers) -> Finding | None:
    k = np.array(DIAGNOSIS.copies, dtype=float)[:, None]
    near, base, far = alone[:, :1], alone[:, 1:2], alone[:, 2:]
    gap = near - base
    left = mixed[:, :-1] - base - gap / (1 + k)
    left_far = mixed[:, -1:] - base - (far - base) / 2
    size = np.linalg.norm(left[:, 0], axis=1)
    share = size / np.maximum(np.linalg.norm(gap[:, 0], axis=1), 1e-300)
    audible = size > 100 * known.noise * np.sqrt(left.shape[2])
    evidence = {"share at the smallest scale": float(share[-1])}
    if audible[-1] and share[-1] > 0.5 * share[0] and share[-1] > DIAGNOSIS.small_share:
        words = "Scores do not tie however short the tokens are, as they would under softmax."
        return Finding("mixing law", False, words, evidence=evidence)
    readable = (share < DIAGNOSIS.small_share) & audible
    if not readable.any():
        return None
    # A larger share means less noise and a larger second-order part: the largest of the small ones comes first, if any.
    # Where heads cancel in the first order, the second outweighs it there, and shorter tokens show the law.
    fine = readable & (share < DIAGNOSIS.fine_share)
    tried = np.flatnonzero(fine if fine.any() else readable)
    told = []
    for at in tried[np.argsort(-share[tried], kind="stable")]:
        wanted = (4 * k / (1 + k) ** 2) * left[at, :1]
        off = float(np.linalg.norm(left[at] - wanted) / size[at])
        doubled = float(np.linalg.norm(left_far[at] - 4 * left[at, :1]) / size[at] / 4)
        holds = max(off, doubled) <= max(DIAGNOSIS.law_off, 10 * float(share[at]))
        told.append((holds, {"off in copies": off, "off in doubling": doubled, "share": float(share[at])}))
    holds, seen = next((one for one in told if one[0]), told[0])
    words = "move the answers as softmax does" if holds else "do not move the answers as softmax does"
    return Finding("mixing law", holds, f"Small differences of score {words}.", evidence=evidence | seen)


ALIKE_QUERIES = DIAGNOSIS.short_sequences * (1 + DIAGNOSIS.distinct_tokens)
"""Queries of `alike`: each sequence, and each of its tokens alone."""


def alike(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether short tokens weigh alike, six different ones at a time: attention to the best few does otherwise."""
    if spec.domain.length_limit < DIAGNOSIS.distinct_tokens:
        return None
    X = sphere(rng, (DIAGNOSIS.short_sequences, DIAGNOSIS.distinct_tokens, spec.dim)) * (norm * DIAGNOSIS.tie_scale)
    return (yield from _weighed(X, spec, known, "Short tokens"))


def neighbours(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """The same behind a norm, which makes short tokens long: of tokens so near to each other that their scores tie, and
    so far that their answers are told apart. Short formats leave no such distance."""
    noise = max(known.relative_noise, float(np.finfo(float).eps))
    if spec.domain.length_limit < DIAGNOSIS.distinct_tokens or noise > SHORT_FORMAT:
        return None
    middle, off = sphere(rng, (2, DIAGNOSIS.short_sequences, DIAGNOSIS.distinct_tokens, spec.dim))
    # What scores do to weights is then of the order of this distance, and so is what noise does to answers.
    X = norm * (middle[:, :1] + noise**0.5 * off)
    return (yield from _weighed(X, spec, known, "Neighbouring tokens"))


def _weighed(X: Array, spec: OracleSpec, known: Answers, tokens: str) -> Asking[Finding | None]:
    """Whether every sequence of X (n, k, d) is answered by the mean of what its tokens are."""
    together = yield Probes(X, phase=PHASE)
    single = yield Probes(X.reshape(-1, 1, spec.dim), phase=PHASE)
    values = single.reshape(*X.shape[:2], -1)
    mean = values.mean(axis=1)
    off = together.reshape(mean.shape) - mean
    size = float(np.sqrt(np.mean((values - mean[:, None]) ** 2))) or 1.0
    gaps = [float(np.sqrt(np.mean(off**2))) / size]
    if spec.outputs == spec.dim:
        # With a residual it is the last token that is added, not the mean.
        gaps.append(float(np.sqrt(np.mean((off - X[:, -1] + X.mean(axis=1)) ** 2))) / size)
    floor = max(DIAGNOSIS.unequal, 20 * known.noise / size)
    if floor > DIAGNOSIS.unheard:
        return None
    holds = min(gaps) <= floor
    words = f"{tokens} weigh alike." if holds else f"{tokens} do not weigh alike."
    return Finding(tokens.lower(), holds, words, evidence={"off their mean": min(gaps), "allowed": floor})


def copied(spec: OracleSpec, norm: float, known: Answers, rng: np.random.Generator) -> Asking[Finding | None]:
    """Whether several copies of every token are answered as one of each.

    They are under all weights that add up to 1 and hang on nothing but scores, whatever their kernel and whatever
    stands behind. Where they are not, copies of a single token say why: its weights add up to 1 at any temperature.
    """
    copies, n = DIAGNOSIS.copies[-1], DIAGNOSIS.short_sequences
    if spec.domain.length_limit < 2 * copies:
        return None
    X = sphere(rng, (n, 2, spec.dim)) * norm
    gaps = []
    for tokens in (X, X[:, -1:]):
        once, often = yield from in_copies(tokens, copies, PHASE)
        size = max(float(np.sqrt(np.mean(once**2))), known.size) or 1.0
        gaps.append(float(np.sqrt(np.mean((often - once) ** 2))) / size)
    evidence = {"copies of both": gaps[0], "copies of one": gaps[1], "tolerance": (allowed := known.tolerance(size))}
    if max(gaps) <= allowed:
        return Finding("copies", True, "Copies of every token are answered as one of each.", evidence=evidence)
    return Finding("copies", False, copies_count(copies, gaps[1] > allowed), evidence=evidence)


def unexplained(spec: OracleSpec, known: Answers, seed: int, otherwise: Diagnosis) -> Asking[Diagnosis]:
    """No learner: for the law of copies, which every class here obeys, where that is broken, or for what is known."""
    law = yield from copied(spec, min(1.0, spec.domain.with_room), known, np.random.default_rng([seed, 0x3C]))
    if law is None or law.value:
        return otherwise
    # What single tokens show of a norm rests on weights that add up to 1.
    kept = [finding for finding in otherwise.findings if (finding.name, finding.value) != ("norm before", "none")]
    return outside((*kept, law), "law", law.sentence.rstrip("."))
