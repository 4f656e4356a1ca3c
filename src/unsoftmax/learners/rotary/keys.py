"""Keys K_g z + b_g of every group: tokens read before query tokens whose queries are known.

Theory: docs/theory/attention-layer.md, "Layers of language models", keys and queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.turns import Turns, read_block
from unsoftmax.learners.rotary.values import raised
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array
from unsoftmax.solvers.shift_operator import pair_sizes, rotation


@dataclass(frozen=True, eq=False)
class Keys:
    """K (G, s, d), bias (G, s) in a gauge with pairs of equal length; A (n, H, s) of the turns in the same gauge.

    condition: worst conditioning of one token's equations. misfit: how far the affine fit misses keys that it could
    not fit at will, relative to the keys. Behind a norm of keys: its form (G, s, s) and eps (G,).
    """

    K: Array
    bias: Array
    A: Array
    condition: float
    misfit: float
    form: Array | None = None
    eps: Array | None = None


def read_keys(reader: Reader, turns: Turns, plan: Plan) -> Asking[Keys]:
    """Blocks of new tokens until d + 1 and a few more are read, each before ceil(s G / H) + 1 query tokens or so."""
    s, m = reader.values.width, len(turns.blocks[0])
    sharing = int(np.bincount(turns.group).min())
    n = -(-s // sharing) + (plan.queries if sharing > 1 else 3 + plan.queries) + plan.beyond_fewest(reader, s)
    n = min(len(turns.q), n)
    blocks, logs = list(turns.blocks), list(turns.logs)
    for planned in turns.planned:
        block, (weights,) = yield from read_block(reader, planned, turns.q[:n], 1)
        blocks.append(block)
        own = 1 - weights.sum(axis=2, keepdims=True)
        logs.append(reader.level(np.log(weights), np.arange(m, 0, -1)) - np.log(own))
    # Keys are fitted to the tokens as they are seen, whatever their number format made of them.
    tokens = reader.scene.seen(reader.scene.tokens(np.vstack(blocks)))
    fits = [_fit(turns, g, tokens, logs, reader.scene.noise) for g in range(int(turns.group.max()) + 1)]
    K, bias = np.stack([f[0] for f in fits]), np.stack([f[1] for f in fits])
    condition = max(float(np.linalg.cond(_equations(turns, g, n))) for g in range(len(K)))
    condition *= raised(np.column_stack([tokens, np.full(len(tokens), reader.scene.radius)]))
    return _balanced(K, bias, turns, condition, max(f[2] for f in fits))


def _fit(turns: Turns, g: int, tokens: Array, logs: list[Array], noise: float) -> tuple[Array, Array, float]:
    """K (s, d) and bias (s,) of one group, up to what does not show; and the misfit.

    Every log ratio is a'(R^D xi(z) - R^D1 xi(z_1)): the self-score cancels against the first token's, xi = K z + b. The
    key p of the first token is left free: the affine fit must hold at every token, and self-scores must agree with it.
    """
    heads = np.flatnonzero(turns.group == g)
    s, m, n = turns.A.shape[2], logs[0].shape[2], len(tokens)
    R = [rotation(turns.theta, D, s) for D in range(m, 0, -1)]
    eta = []
    for log in logs:
        a = _equations(turns, g, len(log))
        rel = log[:, heads] - logs[0][: len(log)][:, heads][..., :1]
        eta.append(np.linalg.lstsq(a, rel.reshape(-1, m), rcond=None)[0])
    moved = np.hstack(eta)
    back = [R[i % m].T for i in range(n)]
    Z = np.column_stack([tokens, np.ones(n)])
    inverse = np.linalg.pinv(Z)
    X0 = np.stack([back[i] @ moved[:, i] for i in range(n)], axis=1)
    Xp = np.stack([back[i] @ R[0] for i in range(n)], axis=1)
    K0, Kp = X0 @ inverse.T, np.einsum("aip,ji->ajp", Xp, inverse)
    fit_p = (np.einsum("aip->iap", Xp) - np.einsum("ajp,ij->iap", Kp, Z)).reshape(-1, s)
    fit_0 = (X0.T - Z @ K0.T).reshape(-1)
    q = np.column_stack([turns.q, np.ones(len(turns.q))])
    A = turns.A[:, heads]
    own_p = np.einsum("jra,ap->jrp", A, R[0]) - np.einsum("jra,abp,jb->jrp", A, Kp, q, optimize=True)
    own_0 = -logs[0][:, heads][..., 0] - np.einsum("jra,ab,jb->jr", A, K0, q)
    E, e = np.vstack([fit_p, own_p.reshape(-1, s)]), np.concatenate([fit_0, own_0.reshape(-1)])
    p = np.linalg.lstsq(E, -e, rcond=max(1e-10, 100 * noise))[0]
    whole = K0 + Kp @ p
    misfit = np.linalg.norm(fit_0 + fit_p @ p) / max(float(np.linalg.norm(X0)), 1e-300)
    return whole[:, :-1], whole[:, -1], float(misfit)


def _equations(turns: Turns, g: int, n: int) -> Array:
    """Queries (n heads, s) of a group at the first n query tokens: what one token's key is read with."""
    return turns.A[:n][:, turns.group == g].reshape(-1, turns.A.shape[2])


def _balanced(K: Array, bias: Array, turns: Turns, condition: float, misfit: float) -> Keys:
    """Pairs of equal length; rows that do not turn orthonormal and without a bias, which would cancel."""
    A = turns.A.copy()
    still = turns.still
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
    return Keys(K, bias, A, condition, misfit)
