"""The smallest change of the weights that a set of near ties would show with 99 %, by kind of change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.references import Reference
from unsoftmax.models.base import Array

if TYPE_CHECKING:
    from unsoftmax.comparing.noise import Group


def detectable_changes(reference: Reference, ties: Group, alpha: float, rng: np.random.Generator) -> dict[str, float]:
    """Relative changes by kind: of all scores, of one head's scores by rank one; else of each weight, or of answers."""
    share = alpha / COMPARING.most_tests
    threshold = statistics.needed(len(ties.X), share, COMPARING.power)
    if reference.heads is not None and ties.X.shape[1] == 2:
        reached = _of_heads(reference.heads, ties, rng)
    elif reference.rebuilt is not None:
        reached = _of_weights(reference, ties, rng)
    else:
        reached = _of_answers(np.asarray(ties.truth, dtype=np.float64), ties)
    return {name: math.sqrt(threshold / low) if low > 0 else math.inf for name, low in reached.items()}


def _of_answers(truth: Array, ties: Group) -> dict[str, float]:
    return {"answers": float(statistics.energy(truth / np.maximum(ties.sd, 1e-150)).sum())}


def _of_heads(heads: Heads, ties: Group, rng: np.random.Generator) -> dict[str, float]:
    """Sum of squared signals per unit of relative change that all but a few random changes reach: dense ones, and those
    of rank one in one head."""
    a, b = ties.X[:, 0] - ties.X[:, 1], ties.X[:, 1]
    t = heads.gaps(ties.X)
    slope = 1 / (2 + np.exp(t) + np.exp(-t))
    written = np.einsum("hod,bd->hbo", heads.P, a)
    sd = ties.sd[:, None] if ties.sd.ndim == 1 else ties.sd
    # What a unit of a'dW_h b does to the answers, in units of the noise: squares and products of heads, (H, H, batch).
    effect = slope[:, :, None] * written / np.maximum(sd, 1e-300)
    gram = np.einsum("hbo,gbo->hgb", effect, effect) / effect.shape[2]
    size = float(np.linalg.norm(heads.W)) or 1.0
    H, d = heads.count, heads.dim
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    # a'dW b of a dense Gaussian change is Gaussian with these covariances between near ties.
    cover = (a @ a.T) * (b @ b.T)
    root = np.linalg.cholesky(cover + 1e-12 * np.eye(len(a)) * float(lengths.max()) ** 2)
    dense = rng.standard_normal((COMPARING.drawn_changes, H, len(a))) @ root.T * (size / math.sqrt(H * d * d))
    found = {"dense": np.einsum("khb,kgb,hgb->k", dense, dense, gram)}
    left, right = (rng.standard_normal((COMPARING.drawn_changes, d)) for _ in range(2))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    one = ((left @ a.T) * (right @ b.T) * size) ** 2
    shown = [float((one @ gram[h, h]).mean()) for h in range(H)]
    # A head that writes nothing shows in no answer.
    weakest = min(range(H), key=lambda h: shown[h] or math.inf)
    found["rank one in one head"] = one @ gram[weakest, weakest]
    return {name: float(np.quantile(signals, 1 - COMPARING.power)) for name, signals in found.items()}


def _of_weights(reference: Reference, ties: Group, rng: np.random.Generator) -> dict[str, float]:
    """The same for changes of one weight array, all its entries changed at random."""
    assert reference.rebuilt is not None
    base = reference.double(ties.X)
    found: dict[str, float] = {}
    draws = (
        COMPARING.random_moves
        if sum(a.size for a in reference.weights.values()) < COMPARING.large_reference
        else COMPARING.few_moves
    )
    # Vectors are the smaller part of a model; they count where matrices do not show.
    for name, weight in sorted(reference.weights.items(), key=lambda item: item[1].ndim < 2):
        size = float(np.linalg.norm(weight))
        if weight.size < 2 or size == 0 or (weight.ndim < 2 and any(found.values())):
            continue
        signals = []
        for _ in range(draws):
            change = rng.standard_normal(weight.shape)
            change *= size / float(np.linalg.norm(change))
            moved = reference.rebuilt(reference.weights | {name: weight + COMPARING.drawn_size * change})
            shown = moved(ties.X) - base
            shown *= float(np.linalg.norm(shown)) > COMPARING.least_shown * float(np.linalg.norm(base))
            # Squares of an answer's outputs are averaged.
            width = shown.size // len(shown)
            signals.append((shown / COMPARING.drawn_size / np.maximum(ties.sd, 1e-150)).ravel() / math.sqrt(width))
        found[name] = _reached(np.stack(signals))
    return found or _of_answers(base, ties)


def _reached(signals: Array) -> float:
    """Sum of squares that all but a few changes reach, from few draws (draws, numbers) of what they do.

    It is that of Gaussians with some covariance S and is taken for a gamma variable of the same mean, tr S, and
    variance, 2 tr S^2: the square of the product of two draws is tr S^2 on average. Where few directions of a change
    show, hardly any may: the least of six draws had been called the smallest that shows, and 5 of 100 did not.
    """
    products = signals @ signals.T
    mean = float(np.trace(products)) / len(signals)
    if not mean:
        return 0.0
    square = float((np.triu(products, 1) ** 2).sum()) / (len(signals) * (len(signals) - 1) / 2)
    degrees = max(1.0, mean**2 / max(square, mean**2 / signals.size))
    return mean * float(stats.chi2.ppf(1 - COMPARING.power, degrees)) / degrees
