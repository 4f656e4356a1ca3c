"""Near ties of one head among several: a token that no other head answers to, and what an error of the head moves.

Theory: docs/theory/verification.md, "Several heads".
"""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.models.multi_head import MultiHead
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.gaps import inside
from unsoftmax.verify.ties import deep, faint


def tying_ones(number: int) -> Array:
    """Which of a head's sequences have ties only; the others reach down to small weights."""
    return np.asarray(np.arange(number) % 3 != 0)


def head_ties(model: MultiHead, h: int, number: int, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (number, N, d), N = 3 or 4, whose scores under head h lie within +-1.5 of the last one's, or far below.

    The first tokens are random, the one before the last is orthogonal to the values of the other heads.
    """
    length = int(min(4, spec.domain.length_limit))
    offset = 0.0 if model.c is None else model.c[h]
    q = sphere(rng, (4 * number, spec.dim))
    readable = np.linalg.norm(q @ model.W[h].T, axis=1)
    q = q[np.argsort(readable, kind="stable")[-number:]]
    rate = np.linalg.norm(q @ model.W[h].T, axis=1, keepdims=True)
    norm = np.clip(np.where(rate > 0, np.maximum(rate, 1e-300) ** -0.5, 1.0), 1e-6, 1e6)
    q = q * np.minimum(norm, 0.3 * spec.domain.norm_limit)
    u = q @ model.W[h].T + offset
    z = sphere(rng, (number, length - 1, spec.dim)) * np.linalg.norm(q, axis=1)[:, None, None]
    free = free_of_others(model, h)
    z[:, -1] = 2 * z[:, -1] @ free
    target = rng.uniform(-1.5, 1.5, (number, length - 1))
    far = ~tying_ones(number)
    target[far] = faint(target[far].shape, rng)
    ways = np.stack([u] * (length - 2) + [u @ free], axis=1)
    size = np.einsum("bnd,bnd->bn", ways, ways)
    step = np.divide(target - np.einsum("bnd,bd->bn", z, u), size, out=np.zeros_like(size), where=size > 0)
    room = min(0.65 * spec.domain.norm_limit, 1e4 * float(norm.max()))
    # Scores too weak to tie within the room leave the tokens in random directions all the same.
    z = z + inside(step[:, :, None] * ways, 0.5 * room)
    z = inside(z, room)
    # Long differences and a short query token keep the scores and outscale additive noise, where length is free.
    bounded = not np.isinf(spec.domain.norm_limit)
    longer = 1.0 if bounded else max(1.0, 1e12 * spec.tolerance)
    tokens = np.concatenate([z * longer, np.zeros((number, 1, spec.dim))], axis=1) + q[:, None] / longer
    if bounded and spec.tolerance == 0:
        tokens[far] = _deep(model, h, tokens[far], 0.99 * spec.domain.norm_limit, rng)
    return np.asarray(tokens)


def _deep(model: MultiHead, h: int, tokens: Array, limit: float, rng: np.random.Generator) -> Array:
    """Sequences (n, N, d) whose weights under head h reach as far down as the limit of the norm allows, and in which
    the other heads answer to the last token alone: all others differ where these have no value."""
    found = deep(model.key_directions, np.full((len(tokens), 1), h), tokens, limit, rng)
    first, free = found[:, :1], free_of_others(model, h)
    # What the projection takes away of the way down is gone; what is left scores as it scores.
    found[:, 1:-1] = first + (found[:, 1:-1] - first) @ free
    return inside(found, limit)


def free_of_others(model: MultiHead, h: int) -> Array:
    """Projector (d, d) off the values of the other heads, or the identity if that would hide head h too."""
    others = np.delete(model.v, h, axis=0)
    others = others[np.linalg.norm(others, axis=1) > 0]
    if len(others) == 0:
        return np.eye(model.dim)
    Q = np.linalg.svd(others / np.linalg.norm(others, axis=1, keepdims=True), full_matrices=False)[2]
    P = np.eye(model.dim) - Q.T @ Q
    return P if np.linalg.norm(P @ model.v[h]) > 1e-3 * np.linalg.norm(model.v[h]) else np.eye(model.dim)


def sensitivity(model: MultiHead, h: int, tokens: Array) -> Array:
    """How much each answer moves per relative error of W_h in a random direction, (batch,); of c_h where W_h is 0."""
    q = tokens[:, -1]
    z = tokens - q[:, None]
    u = q @ model.W[h].T + (0.0 if model.c is None else model.c[h])
    t = np.einsum("bnd,bd->bn", z, u)
    alpha = np.exp(t - t.max(axis=1, keepdims=True))
    alpha /= alpha.sum(axis=1, keepdims=True)
    a = z @ model.v[h]
    spread = alpha * np.abs(a - (alpha * a).sum(axis=1, keepdims=True))
    lengths, size = np.linalg.norm(z, axis=2), float(np.linalg.norm(model.W[h])) / model.dim
    if size:
        lengths = lengths * np.linalg.norm(q, axis=1)[:, None]
    elif model.c is not None:
        size = float(np.linalg.norm(model.c[h])) / math.sqrt(model.dim)
    return np.asarray((spread * lengths).sum(axis=1) * size)
