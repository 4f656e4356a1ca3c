"""Probes: the error against the smallest entry of v, for coordinate probes and for a basis that evens a.v out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.adapters.callable import oracle
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.experiments.theorem_4_1 import ERROR
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.models.distance import relative
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.run.recovery import recover

STEEPEST = -1.4
"""Least slope of the error against the smallest |v_i|, both in logarithms, that passes as -1, give or take what seeds
do to it."""

SHALLOWEST = -0.6
"""Largest slope that passes as -1, for the same reason."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((16,), 5) if quick else ((16, 64), 20)
    return [
        {"probes": probes, "d": d, "margin": 10.0**-k, "seed": seed}
        for d in dims
        for probes in ("householder", "coordinate")
        for k in (range(1, 11, 3) if quick else range(1, 13))
        for seed in range(seeds)
    ]


def target(d: int, margin: float, seed: int) -> Head:
    """Unit v with one entry of size `margin`."""
    rng = np.random.default_rng(seed)
    W, v = rng.standard_normal((d, d)) / np.sqrt(d), rng.choice([-1.0, 1.0], d)
    v[int(rng.integers(d))] *= margin * np.sqrt(d)
    return Head(W, v / np.linalg.norm(v))


def row(point: Row) -> Row:
    head = target(point["d"], point["margin"], point["seed"])
    try:
        found = recover(oracle(head), SingleHead(point["probes"]), seed=point["seed"], verify=False)
    except UnsoftmaxError:
        return {"error": 1.0}
    return {"error": relative(found.model.W, head.W)}


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows if r["probes"] == "householder")
    groups = grouped([r for r in rows if r["probes"] == "coordinate"], "margin")
    middle = [(margin, float(np.median([r["error"] for r in members]))) for (margin,), members in groups.items()]
    margins, errors = np.log10(np.array(middle)).T
    slope = float(np.polyfit(margins, errors, 1)[0])
    return Verdict(
        worst <= ERROR and STEEPEST <= slope <= SHALLOWEST,
        f"with every a.v equal the worst relative error was {worst:.1e} whatever the smallest |v_i|; with coordinate "
        f"probes it grew like |v_i|^{slope:.2f}.",
    )


EXPERIMENT = Experiment(
    name="probes",
    result="Well-conditioned probes",
    claim="An orthogonal basis with equal a.v needs no margin on v; coordinate probes lose a factor 1/|v_i|.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="margin", y="error", group=("probes",), labels=("smallest |v_i|", None)),
    code="unsoftmax/probes/bases.py",
)
