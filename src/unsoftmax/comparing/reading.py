"""From answers to the change of scores: a'dW_h b (+ a . dc_h) of a head, from two-token sequences.

Scalar answers show one head at a time, the others being the reference's or cancelled by a . v_g = 0; vector answers
show the weight sigma(t_h) of every head at once, by least squares against what the heads write, P_h a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.noise import Group
from unsoftmax.learners.core.constants import CORE
from unsoftmax.models.base import Array


@dataclass(frozen=True, eq=False)
class Reading:
    """D (H, n) or (n,) = a'dW b with standard deviations alike; the tokens a, b (n, d) that were really sent."""

    D: Array
    sd: Array
    a: Array
    b: Array


def shortened(sent: Array, wanted: Array) -> Array:
    """By how much sequences were shortened to stay inside the target's domain, (n,), from their last tokens (n, d).

    Both tokens of a sequence are: a change a'dW b that is read there is the square of this smaller than the one asked
    for. 1 where tokens were rounded alone.
    """
    part = np.linalg.norm(sent, axis=1) / np.maximum(np.linalg.norm(wanted, axis=1), 1e-300)
    return np.asarray(np.where(part < EXPLAINING.rounded_length, part, 1.0))


def as_asked(read: Reading, b: Array) -> Reading:
    """A reading of one head at the lengths asked for, b (n, d) among them, where the target's domain is shorter."""
    part = shortened(read.b, b)
    return Reading(read.D / part**2, read.sd / part**2, read.a / part[:, None], read.b / part[:, None])


def read_one(heads: Heads, h: int, made: Group, y: Array) -> Reading:
    """The change of head h from scalar answers, if the other heads are those of `heads`."""
    X = made.X.astype(np.longdouble)
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    v = heads.P[h, 0].astype(np.longdouble)
    rest = sum((_one(heads, g, X) for g in range(heads.count) if g != h), np.zeros(len(X), dtype=np.longdouble))
    av = a @ v
    p = (y - heads.constant[0] - rest - b @ v) / av
    open_, p = _inside(p)
    t0 = _gap(heads, h, a, b)
    D = np.where(open_, (np.log(p / (1 - p)) - t0).astype(np.float64), 0.0)
    sd = made.sd / np.maximum(np.abs(av * p * (1 - p)).astype(np.float64), 1e-300)
    return Reading(D, np.where(open_, sd, np.inf), a.astype(np.float64), b.astype(np.float64))


def read_tokens(heads: Heads, X: Array, y: Array, sd: Array) -> tuple[Array, Array]:
    """Changes of all heads for every token but the last, D and its deviation (H, n, N - 1), from vector answers.

    The weights of the heads are least squares against what they would write. Rounding of a score moves all outputs
    together, along what the head writes; what the least squares leave over (changed values) scales the deviations too.
    """
    n, m = X.shape[0], X.shape[1] - 1
    a, q = X[:, :-1] - X[:, -1:], X[:, -1]
    written = np.einsum("hod,bid->bohi", heads.P, a).reshape(n, -1, heads.count * m)
    rest = y - heads.constant - (q if heads.residual else 0) - np.einsum("hod,bd->bo", heads.P, q)
    inverse = np.linalg.pinv(written / sd[:, :, None])
    p = np.einsum("bko,bo->bk", inverse, rest / sd)
    over = rest / sd - np.einsum("bok,bk->bo", written / sd[:, :, None], p)
    free = max(1, sd.shape[1] - heads.count * m)
    scale = np.maximum(np.sqrt(sd.shape[1]), np.sqrt((over**2).sum(axis=1) / free))
    error = (np.linalg.norm(inverse, axis=2) * scale[:, None]).reshape(n, heads.count, m).transpose(1, 0, 2)
    p = p.reshape(n, heads.count, m).transpose(1, 0, 2)
    last = 1 - p.sum(axis=2, keepdims=True)
    open_ = (p > CORE.saturated_weight) & (last > CORE.saturated_weight)
    p, last = np.maximum(p, CORE.saturated_weight), np.maximum(last, CORE.saturated_weight)
    u = heads.key_directions(q)
    D = np.log(p / last) - np.einsum("bid,hbd->hbi", a, u)
    deviation = error / p + np.linalg.norm(error, axis=2, keepdims=True) / last
    return np.where(open_, D, 0.0), np.where(open_, deviation, np.inf)


def read_all(heads: Heads, X: Array, y: Array, sd: Array) -> Reading:
    """The changes of all heads, (H, n), from vector answers to two-token sequences."""
    D, deviation = read_tokens(heads, X, y, sd)
    return Reading(D[:, :, 0], deviation[:, :, 0], X[:, 0] - X[:, 1], X[:, 1])


def _inside(p: Array) -> tuple[Array, Array]:
    return (p > CORE.saturated_weight) & (p < 1 - CORE.saturated_weight), np.clip(
        p, CORE.saturated_weight, 1 - CORE.saturated_weight
    )


def _gap(heads: Heads, h: int, a: Array, b: Array) -> Array:
    """Score of a + b over b under head h, in long double."""
    u = b @ heads.W[h].astype(np.longdouble).T + heads.c[h]
    return np.asarray((a * u).sum(axis=1))


def _one(heads: Heads, g: int, X: Array) -> Array:
    """What scalar head g writes on two tokens, in long double."""
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    v = heads.P[g, 0].astype(np.longdouble)
    return np.asarray(b @ v + (a @ v) / (1 + np.exp(-_gap(heads, g, a, b))))
