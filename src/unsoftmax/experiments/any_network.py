"""Attention behind networks that nobody knows: W by rays, whatever stands behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import expit, ndtr

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.attention_behind import AttentionBehind
from unsoftmax.models.base import Array
from unsoftmax.models.distance import relative
from unsoftmax.run.recovery import recover

ERROR = 1e-10
"""Largest relative error of W that passes: six of float64's sixteen digits are left to a network nobody knows."""

NETWORKS = ("ReLU with biases", "deep ReLU", "GELU", "SwiGLU")


def points(quick: bool) -> list[Row]:
    dims, seeds = ((8, 16), 3) if quick else ((8, 16, 32, 64), 20)
    return [{"network": name, "d": d, "seed": seed} for name in NETWORKS for d in dims for seed in range(seeds)]


def network(name: str, d: int, rng: np.random.Generator) -> Callable[[Array], Array]:
    """z (batch, d) -> (batch,)."""
    m = 4 * d
    A, B, C = (rng.standard_normal((n, m)) / np.sqrt(n) for n in (d, d, m))
    b, w = rng.standard_normal(m), rng.standard_normal(m)
    return {
        "ReLU with biases": lambda z: np.maximum(z @ A + b, 0) @ w,
        "deep ReLU": lambda z: np.maximum(np.maximum(z @ A + b, 0) @ C + b, 0) @ w,
        "GELU": lambda z: (z @ A + b) * ndtr(z @ A + b) @ w,
        "SwiGLU": lambda z: (z @ A) * expit(z @ A) * (z @ B) @ w,
    }[name]


def row(point: Row) -> Row:
    d, rng = point["d"], np.random.default_rng(point["seed"])
    W, g = rng.standard_normal((d, d)) / np.sqrt(d), network(point["network"], d, rng)

    def service(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, W, X[:, -1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return g(np.einsum("bn,bnd->bd", weights, X))

    found = recover(oracle(service, d), AttentionBehind(), seed=point["seed"])
    head = theory.single_head_queries(d)
    queries = found.usage.phases["values"] + found.usage.phases["main"]
    return {"error": relative(found.model.W, W), "queries": queries, "theorem": head}


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows)
    exact = all(r["queries"] == r["theorem"] for r in rows)
    return Verdict(
        exact and worst <= ERROR,
        f"W came out of {len(rows)} models behind {len(NETWORKS)} kinds of networks with a worst relative error of "
        f"{worst:.1e}, from d + d^2 queries {'every time' if exact else 'not every time'} beside calibration.",
    )


EXPERIMENT = Experiment(
    name="any-network",
    result="Attention behind any homogeneous network",
    claim="W is recovered from d + d^2 value queries behind an unknown network that is homogeneous at infinity.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("network",)),
    code="unsoftmax/learners/attention_behind.py",
)
