"""Labels and several heads: what labels show of a sum of heads, and what each further digit costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.learners.membership import Membership
from unsoftmax.models.distance import distance
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.run.recovery import recover

SLOPE = (0.9, 1.9)
"""Labels per further bit of every unknown: the floor is 1, and 1.3 flips are bisected for each unknown and ten more, of
40 unknowns 1.6 in all."""


def points(quick: bool) -> list[Row]:
    sizes, seeds = (((4, 2),), 2) if quick else (((4, 2), (8, 2), (8, 4)), 10)
    return [
        {"d": d, "H": H, "accuracy": 10.0**-k, "seed": seed}
        for d, H in sizes
        for k in ((5, 9) if quick else (3, 5, 7, 9, 11))
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, H = point["d"], point["H"]
    drawn = MultiHead.random(d, H, norm=2.0, seed=point["seed"])
    target = MultiHead(drawn.W, drawn.v / np.linalg.norm(drawn.v))
    learner = Membership(accuracy=point["accuracy"], heads=None)
    found = recover(oracle(target, kind="membership"), learner, seed=point["seed"])
    return {
        "heads": found.model.heads,
        "error": distance(found.model, target),
        "queries": found.usage.billed,
        "floor": theory.membership_heads_floor(d, H, point["accuracy"]),
    }


def slopes(rows: Sequence[Row]) -> list[float]:
    """Queries per bit of the floor between the coarsest and the finest accuracy, of every target."""
    found = []
    for _, members in grouped(rows, "d", "H", "seed").items():
        fine, coarse = (pick(members, key=lambda r: r["accuracy"]) for pick in (min, max))
        found.append((fine["queries"] - coarse["queries"]) / (fine["floor"] - coarse["floor"]))
    return found


def judge(rows: Sequence[Row]) -> Verdict:
    counted = sum(r["heads"] == r["H"] for r in rows)
    met = sum(r["error"] <= r["accuracy"] for r in rows)
    per_bit = float(np.median(slopes(rows)))
    return Verdict(
        counted == met == len(rows) and SLOPE[0] <= per_bit <= SLOPE[1],
        f"the number of heads was right in {counted} of {len(rows)} runs and the accuracy asked for met in {met}; a "
        f"further bit of every unknown cost {per_bit:.2f} times the floor.",
    )


EXPERIMENT = Experiment(
    name="membership-heads",
    result="Several heads from labels",
    claim="Labels show every head of a sum, W_h and v_h up to one common scale of all v_h, to any accuracy asked for.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="accuracy", y="queries", group=("d", "H"), log_y=False),
    code="unsoftmax/learners/labels/heads.py",
)
