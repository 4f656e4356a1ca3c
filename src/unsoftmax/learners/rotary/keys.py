"""Keys K_g z + b_g of every group: tokens read before query tokens whose queries are known.

Theory: docs/theory/attention-layer.md, "Layers of language models", keys and queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.turns import Turns, read_block
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array
from unsoftmax.solvers.shift_operator import pair_sizes, rotation
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.weighted import inverse_of, weighted


@dataclass(frozen=True, eq=False)
class Keys:
    """K (G, s, d), bias (G, s) in a gauge with pairs of equal length; A (n, H, s) of the turns in the same gauge.

    condition: worst conditioning of one token's equations. error: relative error of keys for an error of 1 in every
    weight. misfit: how far the affine fit misses keys that it could not fit at will, relative to the keys. Behind a
    norm of keys: its form (G, s, s) and eps (G,).
    """

    K: Array
    bias: Array
    A: Array
    condition: float
    error: float
    misfit: float
    form: Array | None = None
    eps: Array | None = None


def read_keys(reader: Reader, turns: Turns, plan: Plan) -> Asking[Keys]:
    """Blocks of new tokens until d + 1 and a few more are read, each before ceil(s G / H) + 1 query tokens or so."""
    s, m = reader.values.width, len(turns.read[0].block)
    sharing = int(np.bincount(turns.group).min())
    n = -(-s // sharing) + (plan.queries if sharing > 1 else 3 + plan.queries) + plan.beyond_fewest(reader, s)
    n = min(len(turns.q), n)
    blocks = [part.block for part in turns.read]
    logs = [(part.fitted, part.errors) for part in turns.read]
    for planned in turns.planned:
        block, (weights,) = yield from read_block(reader, planned, turns.q[:n], 1)
        blocks.append(block)
        own = 1 - weights.sum(axis=2, keepdims=True)
        level = reader.level(np.log(weights), np.arange(m, 0, -1))
        logs.append((level - np.log(own), 1 / weights + 1 / own))
    # Keys are fitted to the tokens as they are seen, whatever their number format made of them.
    tokens = reader.scene.seen(reader.scene.tokens(np.vstack(blocks)))
    fits = [_fit(turns, g, tokens, logs, reader.scene) for g in range(int(turns.group.max()) + 1)]
    condition = max(float(np.linalg.cond(_equations(turns, g, n))) for g in range(len(fits)))
    K, bias = np.stack([f.K for f in fits]), np.stack([f.bias for f in fits])
    return _balanced(Keys(K, bias, turns.A, condition, max(f.error for f in fits), max(f.misfit for f in fits)), turns)


@dataclass(frozen=True, eq=False)
class _Fit:
    """K (s, d), bias (s,) of one group; error and misfit as of `Keys`."""

    K: Array
    bias: Array
    error: float
    misfit: float


def _fit(turns: Turns, g: int, tokens: Array, logs: list[tuple[Array, Array]], scene: Scene) -> _Fit:
    """Keys of one group, up to what does not show.

    Every log ratio is a'(R^D xi(z) - R^D1 xi(z_1)): the self-score cancels against the first token's, xi = K z + b. The
    key p of the first token is left free: the affine fit must hold at every token, and self-scores must agree with it.
    """
    heads = np.flatnonzero(turns.group == g)
    s, m, n = turns.A.shape[2], logs[0][0].shape[2], len(tokens)
    R = [rotation(turns.theta, D, s) for D in range(m, 0, -1)]
    first, loud = logs[0][0][:, heads][..., 0], logs[0][1][:, heads][..., 0] + turns.errors[:, heads]
    eta = []
    for log, error in logs:
        k = len(log)
        a = _equations(turns, g, k)
        rel, error = log[:, heads] - first[:k, :, None], error[:, heads] + loud[:k, :, None]
        eta += [weighted(a, rel[..., i].ravel(), error[..., i].ravel()) for i in range(m)]
    moved, errors = np.stack([found.x for found in eta], axis=1), np.array([found.error for found in eta])
    back = [R[i % m].T for i in range(n)]
    Z = np.column_stack([tokens, np.ones(n)])
    inverse = inverse_of(Z, errors)
    X0 = np.stack([back[i] @ moved[:, i] for i in range(n)], axis=1)
    Xp = np.stack([back[i] @ R[0] for i in range(n)], axis=1)
    K0, Kp = X0 @ inverse.T, np.einsum("aip,ji->ajp", Xp, inverse)
    fit_p = (np.einsum("aip->iap", Xp) - np.einsum("ajp,ij->iap", Kp, Z)).reshape(-1, s)
    fit_0 = (X0.T - Z @ K0.T).reshape(-1)
    q = np.column_stack([turns.q, np.ones(len(turns.q))])
    A = turns.A[:, heads]
    own_p = np.einsum("jra,ap->jrp", A, R[0]) - np.einsum("jra,abp,jb->jrp", A, Kp, q, optimize=True)
    own_0 = -first - np.einsum("jra,ab,jb->jr", A, K0, q)
    scale = 1 / np.concatenate([np.repeat(errors, s), loud.ravel()])
    E = np.vstack([fit_p, own_p.reshape(-1, s)]) * scale[:, None]
    e = np.concatenate([fit_0, own_0.reshape(-1)]) * scale
    cut = max(1e-10, 100 * scene.noise)
    p = np.linalg.lstsq(E, -e, rcond=cut)[0]
    whole = K0 + Kp @ p
    left, size = (fit_0 + fit_p @ p) * scale[: n * s], X0.T.ravel() * scale[: n * s]
    misfit = np.linalg.norm(left) / max(float(np.linalg.norm(size)), 1e-300)
    # Of the constant part, what tokens as long as those asked make of it.
    lengths = np.append(np.ones(tokens.shape[1]), 1 / scene.radius)
    told = np.linalg.norm(lengths[:, None] * inverse * errors)
    told = np.hypot(told, np.linalg.norm(lengths[:, None] * (Kp @ _half_covariance(E, cut))))
    return _Fit(whole[:, :-1], whole[:, -1], float(told / np.linalg.norm(whole * lengths)), float(misfit))


def _half_covariance(E: Array, cut: float) -> Array:
    """F (s, rank) with F F' the covariance of what least squares on E (n, s) tells, errors being 1."""
    _, sizes, Vt = svd(E, full_matrices=False)
    kept = sizes > cut * sizes[0]
    return np.asarray(Vt[kept].T / sizes[kept])


def _equations(turns: Turns, g: int, n: int) -> Array:
    """Queries (n heads, s) of a group at the first n query tokens: what one token's key is read with."""
    return turns.A[:n][:, turns.group == g].reshape(-1, turns.A.shape[2])


def _balanced(keys: Keys, turns: Turns) -> Keys:
    """Pairs of equal length; rows that do not turn orthonormal and without a bias, which would cancel."""
    K, bias, A, still = keys.K, keys.bias, keys.A.copy(), turns.still
    for g in range(len(K)):
        heads = np.flatnonzero(turns.group == g)
        size = pair_sizes(K[g])
        K[g], bias[g] = K[g] / size[:, None], bias[g] / size
        A[:, heads] *= size
        if still.any():
            bias[g][still] = 0.0
            rows, r = np.linalg.qr(K[g][still].T)
            K[g][still] = rows.T
            for h in heads:
                A[:, h, still] = A[:, h, still] @ r.T
    return replace(keys, A=A)
