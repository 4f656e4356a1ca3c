"""Do features of other classes explain what the fit has left? A score test, one F test per kind of feature.

Held-out error cannot tell a wrong class from noise of unknown size: both leave as much on new records as on old ones.
Features that the class does not have can: off the columns of J they explain noise no better than chance.

Nor does agreement show a class where any other would agree: near copies of few sequences differ by little more than
the noise, however many there are. `chance` says how likely that is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.directions import Seen, units_of
from unsoftmax.fitting.heads import HeadsAt, mean_tokens
from unsoftmax.fitting.shape import Shape
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array


@dataclass(frozen=True)
class Missing:
    """The strongest feature and its p-value, corrected for the number of features tried."""

    feature: str
    p_value: float


def lack_of_fit(blocks: Blocks, x: Array, at: HeadsAt, seen: Seen, deviations: Array, seed: int) -> Missing:
    """The feature that explains most of the residual beyond J. Rows are weighted by their deviations (n m,)."""
    from scipy.stats import f as fisher  # a slow import, needed at the end of a fit only

    shape = at.shape
    r = seen.off((at.residual / deviations)[:, None])[:, 0]
    found = []
    for name, F in _features(blocks, shape, x, seed).items():
        if shape.unknowns > FITTING.most_directions:
            # One column stands for all of a large log's feature: each costs a solve.
            F = F @ np.random.default_rng([seed, F.shape[1]]).standard_normal((F.shape[1], 1))
        columns = np.kron(F, np.eye(shape.outputs)) / deviations[:, None]
        B = _basis(seen.off(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)))
        k, rest = B.shape[1], len(r) - seen.rank - B.shape[1]
        if k == 0 or rest < 1:
            continue
        explained = float(((B.T @ r) ** 2).sum())
        left = max(float(r @ r) - explained, 1e-300)
        found.append(Missing(name, float(fisher.sf(explained / k / (left / rest), k, rest))))
    if not found:
        return Missing("nothing could be tested", 1.0)
    best = min(found, key=lambda missing: missing.p_value)
    return Missing(best.feature, min(1.0, best.p_value * len(found)))


def chance(blocks: Blocks, x: Array, shape: Shape, seen: Seen, deviations: Array, seed: int) -> float:
    """How likely the fit would agree with answers of another class that are as large as these.

    Heads as far from those found as these are from 0 stand for it. What J does not explain of them has deviations s
    along as many directions as the records show, noise has 1 along each: within noise along all is a share of
    prod 1 / sqrt(1 + s^2).
    """
    W, _, P = shape.split(x)
    rng = np.random.default_rng([seed, 0x0DD])
    entry = units_of(blocks, shape, x)[0]
    others = np.empty((len(deviations), FITTING.other_heads))
    for k in range(FITTING.other_heads):
        Z = mean_tokens(blocks, W + entry * rng.standard_normal(W.shape))
        values = rng.standard_normal(P.shape).transpose(0, 2, 1).reshape(-1, shape.outputs)
        others[:, k] = (Z @ values).ravel() / deviations
    size = float(np.linalg.norm(blocks.y.ravel() / deviations))
    others *= size / max(float(np.linalg.norm(others)), 1e-300)
    s = np.linalg.svd(seen.off(others), compute_uv=False)
    return float(np.exp(-np.log(np.hypot(1, s)).sum()))


def _basis(A: Array) -> Array:
    """Orthonormal columns that span those of A; of columns that had length 1, what is below this is rounding."""
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return np.asarray(U[:, s > HALF_DIGITS])


def _features(blocks: Blocks, shape: Shape, x: Array, seed: int) -> dict[str, Array]:
    """Features (n, k) by name: parts of attention models that this class does not have."""
    W, _, P = shape.split(x)
    n, d = blocks.q.shape
    Z = mean_tokens(blocks, W)
    f = np.einsum("nhd,hmd->nm", Z.reshape(n, shape.heads, d), P)
    position, linear, gate, offset = (np.empty((n, k)) for k in (d, shape.outputs, shape.outputs, d))
    u = [blocks.q @ Wh.T for Wh in W]
    for block in blocks:
        rows, X = block.rows, block.tokens
        inside = np.ones(X.shape[:2]) if block.beyond is None else (~block.beyond).astype(float)
        place = np.cumsum(inside, axis=1) * inside / inside.sum(axis=1, keepdims=True)
        position[rows] = np.matmul(place[:, None], X)[:, 0]
        scores = np.matmul(X, u[0][rows, :, None])[:, :, 0] * inside
        values = X @ P[0].T
        linear[rows] = np.matmul(scores[:, None], values)[:, 0]
        gate[rows] = np.matmul((np.tanh(scores / 2) * inside)[:, None], values)[:, 0]
        alpha = attend(block, u[0][rows])[1]
        slope = alpha * (values - np.matmul(alpha[:, None], values)).sum(axis=2)
        offset[rows] = np.matmul(slope[:, None], X)[:, 0]
    found = {
        "a constant": np.ones((n, 1)),
        "the query token itself": blocks.q,
        "the mean token": mean_tokens(blocks, np.zeros((1, d, d))),
        "positions": position,
        "powers of the answer": np.concatenate([f**2, f**3], axis=1),
        "squares of what heads attend to": Z**2,
        "scores that are not normalised": np.concatenate([linear, gate], axis=1),
        "an offset of the keys": offset,
    }
    if blocks.lengths[0] < blocks.lengths[-1]:
        found["the length of the sequence"] = np.log(blocks.lengths)[:, None]
    rng = np.random.default_rng([seed, 0x5C0])
    size = float(np.sqrt((W**2).mean()))
    for _ in range(FITTING.random_heads):
        head = mean_tokens(blocks, rng.standard_normal((1, d, d)) * size)
        found["a further head"] = np.concatenate([found.get("a further head", np.empty((n, 0))), head], axis=1)
    return found
