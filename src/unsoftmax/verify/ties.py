"""Near ties: sequences in which the recovered model gives several tokens about the same score.

Theory: docs/theory/verification.md, "Near ties".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.links import READABLE
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import inside

NEAR_TIES = 48
"""Fresh sequences with near ties, where an error of the scores shows most; every third of them reaches down to small
weights."""

FAINTEST = -30.0
"""Scores of faint tokens lie down to this far below the others': a weight of 1e-13, beside which an answer of float64
still has three digits."""


def faint(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Scores of tokens below the last one's that reach every size of small weights, evenly spread and in random order.

    Attention that drops small weights (pruned, sparse, cut off at a threshold) shows where a token lies just below its
    threshold, wherever that is.
    """
    number = math.prod(shape)
    places = (rng.permutation(number) + rng.random(number)) / max(number, 1)
    return np.asarray(FAINTEST * places).reshape(shape)


def near_ties(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (batch, N, d) whose scores under one of the model's heads lie within +-1.5 of the last token's."""
    length = int(min(4, spec.domain.length_limit))
    q = _readable_queries(model, spec, rng)
    tokens = sphere(rng, (NEAR_TIES, length, spec.dim)) * np.linalg.norm(q, axis=1)[:, None, None]
    tokens[:, -1] = q
    ordinary = 1e4 * float(np.linalg.norm(q, axis=1).max())
    longest = min(0.99 * spec.domain.norm_limit, ordinary, _readable_norm(model, spec, rng))
    directions = model.key_directions(q)
    if len(directions):
        u = directions[rng.integers(len(directions), size=NEAR_TIES), np.arange(NEAR_TIES)]
        size = np.einsum("bd,bd->b", u, u)
        levels = rng.uniform(-1.5, 1.5, (NEAR_TIES, length - 1))
        levels[::3] = faint(levels[::3].shape, rng)
        target = np.einsum("bd,bd->b", u, q)[:, None] + levels
        excess = np.einsum("bnd,bd->bn", tokens[:, :-1], u) - target
        step = np.divide(excess, size[:, None], out=np.zeros_like(excess), where=size[:, None] > 0)
        # Where the scores are too weak to tie, the tokens stay of an ordinary size and in random directions.
        tokens[:, :-1] -= inside(step[:, :, None] * u[:, None, :], 0.5 * longest)
    return inside(tokens, longest)


def _readable_queries(model: Model, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Query tokens (batch, d), the better half of twice as many: where W q is small, ties need enormous tokens."""
    q = sphere(rng, (2 * NEAR_TIES, spec.dim))
    directions = model.key_directions(q)
    size = np.linalg.norm(directions, axis=-1).min(axis=0) if len(directions) else np.arange(len(q))
    return np.asarray(q[np.argsort(size, kind="stable")[NEAR_TIES:]] * typical_norm(model, spec, rng))


def typical_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm at which scores are of order one: |W q| |x| = 1 for |q| = |x|; inside the domain."""
    q = sphere(rng, (8, spec.dim))
    directions = model.key_directions(q)
    size = float(np.linalg.norm(directions, axis=-1).max(initial=0.0))
    norm = 1.0 if size == 0 else size**-0.5
    norm = min(max(norm, 1e-6), 1e6, 0.9 * spec.domain.norm_limit)
    return min(norm, _readable_norm(model, spec, rng))


def _readable_norm(model: Model, spec: OracleSpec, rng: np.random.Generator) -> float:
    """Token norm below which answers stay where the oracle's link, if any, is steep."""
    if math.isinf(READABLE[spec.link]):
        return math.inf
    rate = float(np.sqrt(np.mean(model(sphere(rng, (32, 1, spec.dim))) ** 2))) * math.sqrt(spec.dim)
    return READABLE[spec.link] / rate if rate else math.inf


def with_component(x: Array, unit: Array, wanted: Array, *, keep_norm: bool) -> Array:
    """x (batch, d) with its component along `unit` replaced; on its sphere if the norm is to be kept."""
    norm = np.linalg.norm(x, axis=1)
    wanted = np.clip(wanted, -0.9 * norm, 0.9 * norm) if keep_norm else np.clip(wanted, -1e4 * norm, 1e4 * norm)
    rest = x - np.einsum("bd,bd->b", x, unit)[:, None] * unit
    if keep_norm:
        rest *= (np.sqrt(norm**2 - wanted**2) / np.linalg.norm(rest, axis=1))[:, None]
    return np.asarray(rest + wanted[:, None] * unit)
