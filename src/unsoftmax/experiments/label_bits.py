"""Labels and low rank: queries against the one-bit-per-label floor of the rank-r class."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.learners.membership import Membership
from unsoftmax.models.distance import relative
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.run.recovery import recover

FULL = "all entries"
SLOPE = (0.95, 1.25)
"""Labels per further bit of every unknown: the floor is 1."""


def points(quick: bool) -> list[Row]:
    sizes, seeds = (((8, 1), (16, 2)), 2) if quick else (((8, 1), (16, 1), (16, 2), (32, 2), (32, 4)), 10)
    return [
        {"rank": rank, "d": d, "r": r, "accuracy": 10.0**-k, "seed": seed}
        for d, r in sizes
        for rank in ("rank r", FULL)
        for k in ((2, 5, 8) if quick else range(1, 11))
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, r = point["d"], point["r"]
    target = Head.random(d, rank=r, seed=point["seed"])
    full = point["rank"] == FULL
    learner = Membership(accuracy=point["accuracy"], rank="full" if full else r)
    found = recover(oracle(target, kind="membership"), learner, seed=point["seed"])
    return {
        "error": relative(found.model.W, target.W),
        "queries": found.usage.billed,
        "floor": theory.membership_floor(d, point["accuracy"], None if full else r),
    }


def slopes(rows: Sequence[Row]) -> dict[str, float]:
    """Queries per bit of the floor, between the coarsest and the finest accuracy, worst over sizes and seeds."""
    worst: dict[str, float] = {}
    for (rank, *_), members in grouped(rows, "rank", "d", "r", "seed").items():
        fine, coarse = (pick(members, key=lambda r: r["accuracy"]) for pick in (min, max))
        slope = (fine["queries"] - coarse["queries"]) / (fine["floor"] - coarse["floor"])
        worst[rank] = max(worst.get(rank, 0.0), slope)
    return worst


def judge(rows: Sequence[Row]) -> Verdict:
    held = all(r["error"] <= r["accuracy"] for r in rows)
    per_bit = slopes(rows)
    low, high = SLOPE
    said = ", ".join(f"{slope:.2f} for {rank}" for rank, slope in per_bit.items())
    return Verdict(
        held and all(low <= slope <= high for slope in per_bit.values()),
        f"the accuracy asked for was met in {'every run' if held else 'not every run'}; a further bit of every unknown "
        f"cost at most so many times the floor: {said}.",
    )


EXPERIMENT = Experiment(
    name="membership",
    result="Labels at one bit per bit",
    claim="From labels alone a head costs about one query per bit of its unknowns, be they d^2 or r(2d - r).",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="accuracy", y="queries", group=("rank", "d"), log_y=False),
    code="unsoftmax/learners/labels/cross.py",
)
