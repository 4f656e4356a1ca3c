"""ReLU networks of unknown width: queries per unknown and error, m from d/2 to 4d."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.relu_network import ReluNetwork
from unsoftmax.models.relu_network import ReluNetwork as Network
from unsoftmax.run.recovery import recover

ERROR = 1e-8
"""Largest error on fresh vectors that passes, over the function's root mean square."""

PER_UNKNOWN = 1.5
"""Most queries per unknown that pass, beside the fixed ones; 1 is the least possible."""

FIXED = 100
"""Queries, verification included, that do not grow with the network and are not counted per unknown."""

FRESH = 2000
"""Fresh Gaussian vectors on which the largest error is taken."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((16, 32), 3) if quick else ((16, 32, 64, 128), 10)
    return [
        {"d": d, "m": round(ratio * d), "ratio": ratio, "seed": seed}
        for d in dims
        for ratio in (0.5, 1.0, 2.0, 4.0)
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, m = point["d"], point["m"]
    target = Network.random(d, m, seed=point["seed"])
    found = recover(oracle(target), ReluNetwork(), seed=point["seed"])
    x = np.random.default_rng([point["seed"], 1]).standard_normal((FRESH, 1, d))
    wanted = target(x)
    return {
        "error": float(np.abs(found.model(x) - wanted).max() / np.sqrt(np.mean(wanted**2))),
        "width": found.model.width,
        "queries": found.usage.billed,
        "unknowns": theory.relu_network_unknowns(d, m),
        "per_unknown": found.usage.billed / theory.relu_network_unknowns(d, m),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows)
    most = max((r["queries"] - FIXED) / r["unknowns"] for r in rows)
    least = min(r["queries"] / r["unknowns"] for r in rows)
    widths = all(r["width"] == r["m"] for r in rows)
    return Verdict(
        worst <= ERROR and widths and least >= 1 and most <= PER_UNKNOWN,
        f"the width was found {'every time' if widths else 'not every time'}; at most {most:.2f} queries per unknown "
        f"and {FIXED} more were billed, verification included, and on {FRESH} fresh vectors the largest error was "
        f"{worst:.1e} of the function's root mean square.",
    )


EXPERIMENT = Experiment(
    name="relu-network",
    result="Bias-free ReLU networks, any width",
    claim="A two-layer ReLU network of unknown width m, below or above d, costs 1 to 1.5 queries per unknown, and 100.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="m", y="per_unknown", group=("d",), log_y=False),
    code="unsoftmax/learners/relu_network.py",
)
