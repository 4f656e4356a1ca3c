"""Which part of every neuron reads which head: A_h from pairs inside linear regions of the network.

Around a token x0 whose region holds the ball of radius r, [x0 + delta (n1), x0 (n2)] answers
g(x0) + sum_h sigma(delta'W_h x0 - log k) delta.V_h with V_h = lin_h + sum of w_k A_hk over the active neurons; the sum
of the V_h is the network's own gradient. Regions whose activation patterns are independent give every A_hk.

Theory: docs/theory/multi-head.md, "Several heads behind a network", split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.multi_head_transformer import MultiHeadTransformer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.cross import pivot_rows

_COPIES = np.array([[1, 1], [1, 3], [3, 1]])
"""Copies of the two tokens of a pair, taking turns: three ratios let one direction show three different shares of every
head."""


@dataclass(frozen=True, eq=False)
class Region:
    """A token x (d,), its distance to the nearest kink, and which neurons are active there (m,)."""

    x: Array
    margin: float
    active: Array


def split_network(g: ReluNetwork, W: Array, rng: np.random.Generator) -> Asking[MultiHeadTransformer]:
    """The whole model from the network g that single tokens see and the heads' W (H, d, d)."""
    H, d = len(W), g.dim
    regions = _regions(g, W, rng)
    patterns = np.array([np.append(1.0, region.active * g.w_o) for region in regions])
    y = yield Probes(np.array([region.x for region in regions])[:, None, :], phase="values")
    values = yield from together(
        [
            _gradients(g, W, region, float(y0), np.random.default_rng(rng.integers(2**63)))
            for region, y0 in zip(regions, y, strict=True)
        ]
    )
    V = np.array(values)
    parts = np.linalg.lstsq(patterns, V.reshape(len(regions), -1), rcond=None)[0].reshape(-1, H, d)
    lin, A = parts[0], parts[1:].transpose(1, 2, 0)
    # What single tokens see is known better than any share of it: spread the difference over the heads.
    A = A + (g.A - A.sum(axis=0)) / H
    lin = lin + ((0.0 if g.lin is None else g.lin) - lin.sum(axis=0)) / H
    return MultiHeadTransformer(W, A, g.w_o, g.b, g.b_o, lin)


def _regions(g: ReluNetwork, W: Array, rng: np.random.Generator) -> list[Region]:
    """Roomy regions with independent activation patterns, by pivoted QR over random tokens."""
    d, m = g.dim, g.width
    if m == 0:
        raise ModelMismatch("the network behind the heads is linear: the target is a sum of heads; use MultiHead.")
    number = max(4000, 60 * m)
    x = rng.standard_normal((number, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    sizes = np.linalg.norm(g.A, axis=0)
    bias = np.zeros(m) if g.b is None else g.b
    rate = float(np.sqrt(np.mean(np.linalg.norm(W, axis=(1, 2)) ** 2))) / math.sqrt(d)
    length = np.ones(number)
    margin = length
    for _ in range(4):
        # Long enough that scores are of order one inside the ball the region leaves.
        margin = (np.abs((x * length[:, None]) @ g.A + bias) / sizes).min(axis=1)
        length = np.sqrt(BEHIND.logit_of_pairs * math.sqrt(d) / (np.maximum(margin / length, 1e-4) * rate))
    hidden = (x * length[:, None]) @ g.A + bias
    margin = (np.abs(hidden) / sizes).min(axis=1)
    room = margin / length
    order = np.argsort(-room, kind="stable")
    patterns = np.column_stack([np.ones(number), (hidden > 0) * g.w_o])
    for share in BEHIND.roomy_regions:
        roomy = order[: max(8 * (m + 1), int(share * number))]
        chosen = roomy[_independent(patterns[roomy] * np.sqrt(room[roomy])[:, None])]
        if np.linalg.matrix_rank(patterns[chosen]) == m + 1:
            return [Region(x[i] * length[i], float(margin[i]), hidden[i] > 0) for i in chosen]
    raise ModelMismatch("the network's linear regions do not tell its neurons apart; some kinks nearly coincide.")


def _independent(patterns: Array) -> Array:
    """Places of rows that span those of patterns (n, m + 1), by pivoted QR, and of some to spare."""
    number, unknowns = patterns.shape
    order = pivot_rows(patterns)
    rest = np.setdiff1d(np.arange(number), order[:unknowns], assume_unique=True)
    return np.concatenate([order[:unknowns], rest])[: math.ceil(BEHIND.regions_over_unknowns * unknowns)]


def _gradients(g: ReluNetwork, W: Array, region: Region, y0: float, rng: np.random.Generator) -> Asking[Array]:
    """V (H, d) in one region."""
    H, d = len(W), g.dim
    whole = (region.active * g.w_o) @ g.A.T + (0.0 if g.lin is None else g.lin)
    radius = region.margin
    directions = W @ region.x
    for _ in range(CORE.repairs):
        number = (H - 1) * d + BEHIND.queries_to_spare
        delta = rng.standard_normal((8 * number, d))
        delta *= radius / np.linalg.norm(delta, axis=1, keepdims=True)
        copies = _COPIES[np.arange(len(delta)) % 3]
        share = expit(delta @ directions.T - np.log(copies[:, 1] / copies[:, 0])[:, None])
        apart = (share - share.mean(axis=1, keepdims=True))[:, :, None] * delta[:, None, :]
        order = pivot_rows(apart.reshape(len(delta), -1))
        chosen = np.concatenate(
            [order[: (H - 1) * d], rng.choice(order[(H - 1) * d :], BEHIND.queries_to_spare, replace=False)]
        )
        # Pivots among equals are a matter of last digits.
        picked = (yield from settle("pairs", chosen))[0].astype(int)
        delta, copies, share = delta[picked], copies[picked], share[picked]
        tokens = np.stack([region.x + delta, np.broadcast_to(region.x, delta.shape)], axis=1)
        y = yield Probes(tokens, copies, "main")
        rows = (share[:, :, None] * delta[:, None, :]).reshape(len(delta), -1) / radius
        system = np.vstack([rows, np.tile(np.eye(d), (1, H))])
        wanted = np.concatenate([(y - y0) / radius, whole])
        V = np.linalg.lstsq(system, wanted, rcond=None)[0]
        if np.abs(system @ V - wanted).max() <= BEHIND.spare_gap * np.abs(wanted).max():
            return V.reshape(H, d)
        # A kink lies closer than the network found says: stay nearer.
        radius *= 0.4
    raise ModelMismatch(
        "pairs inside a linear region of the network are not answered by heads that enter it linearly; the target is "
        "outside the class."
    )
