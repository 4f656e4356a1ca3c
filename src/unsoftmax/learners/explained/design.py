"""Tokens for targets that explain themselves, and how large scores should be.

Theory: docs/theory/explanations.md, "Explanations", rounding.
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.explained.constants import EXPLAIN
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec


def first_length(spec: OracleSpec) -> float:
    """Tokens of length 1, or half the limit: sums of two stay inside."""
    return min(1.0, spec.domain.with_room / 2)


def length_for(size: float, wanted: float, spec: OracleSpec) -> float:
    """Token length t at which scores t^2 `size` are as `wanted`, within the limit."""
    return min(math.sqrt(wanted / max(size, 1e-300)), spec.domain.with_room / 2, 1e30)


def basis(d: int, rng: np.random.Generator) -> Array:
    """A random orthonormal basis, rows (d, d)."""
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def frames(n: int, N: int, d: int, rng: np.random.Generator) -> Array:
    """Sequences (n, N, d): last tokens q from orthonormal bases, the others q + z with z from bases of their own.

    Bilinear readings z'W q are then nearly orthogonal, better conditioned than for random tokens.
    """
    q = np.concatenate([basis(d, rng) for _ in range(-(-n // d))])[:n]
    z = np.stack([np.concatenate([basis(d, rng) for _ in range(-(-(N - 1) // d))])[: N - 1] for _ in range(n)])
    return np.concatenate([q[:, None] + z, q[:, None]], axis=1)


def no_scores(spec: OracleSpec) -> NotIdentifiable:
    """The refusal of a target whose attention is saturated at every length that was tried."""
    return NotIdentifiable(
        "attention is saturated for every token length tried, down to "
        f"{EXPLAIN.tokens_shortened_by ** (EXPLAIN.most_pilots - 1) * first_length(spec):.1g}: its scores cannot be "
        "read."
    )


def inconsistent(what: str, gap: float, allowed: float, learner: str) -> ModelMismatch:
    """The refusal of a target whose explanations contradict the class."""
    return ModelMismatch(
        f"{what} by {gap:.2g} where {allowed:.2g} was allowed: the target is outside the class {learner} learns, or "
        "noisier than declared (tolerance=)."
    )
