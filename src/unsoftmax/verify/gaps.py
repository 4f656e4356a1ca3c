"""Gaps of answers, what they are relative to, and tokens that model and target see alike.

Theory: docs/theory/verification.md, "Near ties", sizes.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY


def unseen(asked: int) -> float:
    """Share of sequences that may be otherwise than the so many that were asked, but for `VERIFY.doubt`."""
    return math.log(1 / VERIFY.doubt) / asked


def sure(asked: int) -> str:
    """The same, in words for a claim."""
    confidence, share = 100 * (1 - VERIFY.doubt), 100 * unseen(asked)
    return f"with {confidence:g} % confidence at most {share:.1f} % of sequences so drawn differ by more"


def size_of(answers: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(answers**2)))


def inside(tokens: Array, limit: float) -> Array:
    """Tokens (batch, N, d), those longer than the limit shortened to it."""
    norms = np.linalg.norm(tokens, axis=2, keepdims=True)
    with np.errstate(over="ignore"):
        return np.asarray(tokens * np.minimum(1.0, limit / np.maximum(norms, 1e-300)))


def representable(tokens: Array, spec: OracleSpec | None = None) -> Array:
    """Tokens the target sees exactly, hidden casts included, so that the model is compared and not a cast."""
    return tokens.astype("float16" if spec is not None and spec.dtype == "float16" else "float32").astype(np.float64)


def residual(predicted: Array, answered: Array, reach: Array | float = 1.0) -> float:
    """Largest gap relative to the root mean square of the larger of the two, over each sequence's reach."""
    size = max(size_of(predicted), size_of(answered))
    gap = np.abs(predicted - answered)
    gap = gap.max(axis=1) if gap.ndim == 2 else gap
    return float((gap / reach).max()) / size if size else 0.0


def amplification(model: Model, tokens: Array) -> Array:
    """How much a relative error in the scores can move each answer, (batch,): scores grow with |W| |x| |q|."""
    q = tokens[:, -1]
    size = np.linalg.norm(model.key_directions(q), axis=-1).max(axis=0, initial=0.0)
    rate = (size / np.maximum(np.linalg.norm(q, axis=1), 1e-300)).max()
    largest = np.linalg.norm(tokens, axis=2).max(axis=1)
    return np.asarray(1 + rate * largest * np.linalg.norm(q, axis=1))


def by_size(predicted: Array, answered: Array, sizes: int, reach: Array | None = None) -> float:
    """Largest residual over the sizes, each relative to the answers at that size."""
    weight = np.ones(len(predicted)) if reach is None else reach
    return max(residual(predicted[k::sizes], answered[k::sizes], weight[k::sizes]) for k in range(sizes))
