"""What to ask: sequences made from the reference, in which a change of its weights shows most, and some of every kind.

A near tie [a + b ; b] has scores that hardly differ under every head, so that dy = sum_h (a . v_h) s'(t_h) a'dW_h b is
linear in the change; rounding grows like the signal, so tokens a few times the usual norm are long enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.arithmetic import to_bfloat16
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.references import Reference
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY

TIES = "near ties"
OPEN = "open pairs"
SINGLES = "single tokens"
LONGER = "longer sequences"

_BANDS = ((3, 12), (13, 60), (61, 250), (251, 512))
"""Defined: lengths among the probes, as `theory.comparing` counts them; a window or a trigger that acts on long
sequences only must not stay unseen."""


@dataclass(frozen=True)
class Asked:
    """How tokens must look: the domain of the target and the number format it computes in."""

    spec: OracleSpec
    arithmetic: str

    def on_grid(self, X: Array, *, fine: bool = False) -> Array:
        """Tokens the target sees exactly, inside its domain; the whole sequence is shortened where one is too long.

        Hidden casts to float32 are allowed for; `fine` keeps float64 tokens of a float64 target, for questions that
        must not be seen by other heads.
        """
        limit = self.spec.domain.inside
        if math.isfinite(limit):
            longest = np.linalg.norm(X, axis=2).max(axis=1, initial=0.0)
            X = X * np.minimum(1.0, limit / np.maximum(longest, 1e-300))[:, None, None]
        if fine and self.arithmetic == "float64":
            return X
        if self.arithmetic == "bfloat16":
            return to_bfloat16(X)
        return np.asarray(X.astype("float16" if self.arithmetic == "float16" else "float32").astype(np.float64))

    @property
    def longest(self) -> int:
        """Most tokens a probe may have."""
        return int(min(self.spec.domain.length_limit, _BANDS[-1][1]))


def usual_norm(reference: Reference, asked: Asked, rng: np.random.Generator) -> float:
    """Token norm at which scores are of order one; what a LayerNorm would see where heads are not known."""
    model, d = reference.model, asked.spec.dim
    limit = asked.spec.domain.with_room
    if model is None or (isinstance(model, AttentionLayer) and model.norm == "pre"):
        return min(math.sqrt(d), limit)
    q = sphere(rng, (16, d))
    size = float(np.linalg.norm(_directions(reference, model, q), axis=-1).max(initial=0.0))
    return min(max(size**-0.5 if size else 1.0, 1e-6), 1e6, limit)


def _directions(reference: Reference, model: Model, q: Array) -> Array:
    """u_h(q), (H, batch, d)."""
    return np.asarray((reference.heads or model).key_directions(q), dtype=np.float64)


def near_ties(reference: Reference, asked: Asked, n: int, norm: float, rng: np.random.Generator) -> Array:
    """n sequences in which the reference's scores nearly tie; random ones where its heads are not known."""
    if reference.heads is not None and reference.heads.count < asked.spec.dim:
        return asked.on_grid(pairs(reference.heads, n, norm, rng))
    length = min(VERIFY.tie_length, asked.longest)
    if asked.spec.vocabulary is not None:
        return rng.choice(asked.spec.allowed, (n, 2 if asked.longest >= 2 else 1))
    X = sphere(rng, (n, length, asked.spec.dim)) * norm
    if reference.model is None:
        # Two norms are usual: that of unit vectors and that of normalised tokens.
        X[::2] *= 2.0 * norm ** (-1.0 if norm > 1 else 0.0)
        return asked.on_grid(X)
    return asked.on_grid(_tied(reference, X, norm, rng))


def pairs(heads: Heads, n: int, norm: float, rng: np.random.Generator) -> Array:
    """Two-token near ties (n, 2, d) under all heads at once; of twice as many those with the shortest tokens."""
    d, H, k = heads.dim, heads.count, 2 * n
    b, a = sphere(rng, (k, d)), sphere(rng, (k, d))
    if heads.scalar and d - 1 > H:
        v = heads.P[:, 0]
        basis = np.linalg.qr(v.T)[0]
        rest = b - (b @ basis) @ basis.T
        b = rest / np.linalg.norm(rest, axis=1, keepdims=True)
        units = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
        towards = rng.standard_normal((k, H)) @ units
        a = a + towards / np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), 1e-300)
        a /= np.linalg.norm(a, axis=1, keepdims=True)
    a, b = a * norm, b * norm
    u = heads.key_directions(b).transpose(1, 0, 2)
    inverse = np.linalg.pinv(u)
    wanted = np.einsum("bdh,bh->bd", inverse, rng.uniform(-COMPARING.tie_spread, COMPARING.tie_spread, (k, H)))
    # Tokens much shorter than usual score less than that; a longer a would leave no room for b.
    wanted *= np.minimum(
        1.0, COMPARING.reach * norm / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-300)
    )
    a = a + wanted - np.einsum("bdh,bhe,be->bd", inverse, u, a)
    return np.stack([a + b, b], axis=1)[_shortest(a, n)]


def open_pairs(reference: Reference, asked: Asked, n: int, norm: float, rng: np.random.Generator) -> Array:
    """n sequences whose scores stand apart and cancel nothing: these show a scale of all scores, which near ties, at
    scores near 0, do not; near ties where heads are not known."""
    heads = reference.heads
    if heads is None or heads.count >= asked.spec.dim - 1 or asked.longest < 2:
        return near_ties(reference, asked, n, norm, rng)
    d, H, k = heads.dim, heads.count, 4 * n
    b = sphere(rng, (k, d))
    written = heads.P[:, 0]
    basis = np.linalg.qr(written.T)[0] if heads.scalar else np.zeros((d, 1))
    b = b - (b @ basis) @ basis.T
    b *= norm / np.linalg.norm(b, axis=1, keepdims=True)
    u = heads.key_directions(b).transpose(1, 0, 2)
    inverse = np.linalg.pinv(u)
    a = np.einsum("bdh,bh->bd", inverse, rng.choice([-VERIFY.widest_score, VERIFY.widest_score], (k, H)))
    a *= np.minimum(1.0, COMPARING.reach * norm / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-300))
    # As long again across the key directions, along what the heads write, so that the weights show in the answer.
    aside = rng.standard_normal((k, H)) @ written
    aside = aside - np.einsum("bdh,bhe,be->bd", inverse, u, aside)
    a = a + aside * (np.linalg.norm(a, axis=1) / np.maximum(np.linalg.norm(aside, axis=1), 1e-300))[:, None]
    # Heads whose key directions nearly agree at b would take long tokens to be apart.
    return asked.on_grid(np.stack([a + b, b], axis=1)[_shortest(a, n)])


def _shortest(a: Array, n: int) -> Array:
    """The n shortest of a (k, d), in order. Those cut to one length differ by last digits, which must not choose."""
    return np.sort(np.argsort(np.linalg.norm(a, axis=1).astype(np.float32), kind="stable")[:n])


def _tied(reference: Reference, X: Array, norm: float, rng: np.random.Generator) -> Array:
    """Sequences whose other tokens score within +-1.5 of the last under one head, heads taking turns."""
    model = reference.model
    assert model is not None
    normed = isinstance(model, AttentionLayer) and model.norm == "pre"
    if normed:
        assert isinstance(model, AttentionLayer)
        model = model.canonical()
        X = X - X.mean(axis=2, keepdims=True)
        X *= math.sqrt(X.shape[2]) / np.linalg.norm(X, axis=2, keepdims=True)
    u = np.asarray(model.key_directions(X[:, -1]), dtype=np.float64)
    if not len(u):
        return X
    for i in range(X.shape[1] - 1):
        turn = u[(np.arange(len(X)) + i) % len(u), np.arange(len(X))]
        size = np.maximum(np.linalg.norm(turn, axis=1), 1e-300)
        unit = turn / size[:, None]
        wanted = (
            np.einsum("bd,bd->b", unit, X[:, -1])
            + rng.uniform(-VERIFY.widest_score, VERIFY.widest_score, len(X)) / size
        )
        reach = 0.9 * np.linalg.norm(X[:, i], axis=1) if normed else 4.0 * norm
        X[:, i] += (np.clip(wanted, -reach, reach) - np.einsum("bd,bd->b", unit, X[:, i]))[:, None] * unit
    return X


def tied_sequences(
    reference: Reference, asked: Asked, n: int, length: int, norms: Array, rng: np.random.Generator
) -> Array:
    """n sequences of one length whose tokens, of norms (n, 1, 1), score nearly alike; heads take turns."""
    X = sphere(rng, (n, length, asked.spec.dim)) * norms
    return asked.on_grid(X if reference.model is None else _tied(reference, X, float(np.median(norms)), rng))


def singles(asked: Asked, n: int, norm: float, rng: np.random.Generator) -> Array:
    """n sequences of one token."""
    if asked.spec.vocabulary is not None:
        return rng.choice(asked.spec.allowed, (n, 1))
    return asked.on_grid(sphere(rng, (n, 1, asked.spec.dim)) * norm)


def longer(reference: Reference, asked: Asked, norm: float, rng: np.random.Generator) -> list[Array]:
    """Random sequences of several lengths and norms, two of each; the longest that may be asked is among them."""
    only = getattr(reference.model, "length", None)
    lengths = [int(rng.integers(low, min(high, asked.longest) + 1)) for low, high in _BANDS if low <= asked.longest]
    if asked.longest >= 2:
        lengths = [*lengths[:-1], asked.longest] if lengths else [asked.longest]
    lengths = [int(only)] if isinstance(only, int) else lengths
    found = []
    for i, length in enumerate(lengths):
        if asked.spec.vocabulary is not None:
            found.append(rng.choice(asked.spec.allowed, (COMPARING.per_band, length)))
            continue
        # Weights of a long softmax are of order one only if scores are.
        found.append(
            asked.on_grid(
                sphere(rng, (COMPARING.per_band, length, asked.spec.dim))
                * norm
                * COMPARING.longer_norms[i % len(COMPARING.longer_norms)]
            )
        )
    return found
