"""Low rank by a cross of entries, the rank not given: queries against the degrees of freedom."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.low_rank import LowRank
from unsoftmax.models.distance import distance
from unsoftmax.models.single_head import LowRankHead
from unsoftmax.run.recovery import recover

ERROR = 1e-11
"""Largest relative error that passes."""

EXTRA = 100
"""Half the queries that pilot, check of the rank and verification may take beside 2r, whatever d is."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((64, 128, 256), 3) if quick else ((64, 128, 256, 512, 1024), 10)
    return [{"d": d, "r": r, "seed": seed} for d in dims for r in (2, 8, 16) for seed in range(seeds)]


def row(point: Row) -> Row:
    d, r = point["d"], point["r"]
    target = LowRankHead.random(d, r, seed=point["seed"])
    found = recover(oracle(target), LowRank(), seed=point["seed"])
    return {
        "error": distance(found.model, target),
        "rank": found.model.rank,
        "queries": found.usage.phases["values"] + found.usage.phases["main"],
        "billed": found.usage.billed,
        "unknowns": theory.low_rank_queries(d, r),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows)
    exact = all(r["queries"] == r["unknowns"] and r["rank"] == r["r"] for r in rows)
    spare = max(r["billed"] - r["unknowns"] - 2 * (r["r"] + EXTRA) for r in rows)
    return Verdict(
        exact and worst <= ERROR and spare <= 0,
        f"the rank was found and d + r(2d - r) queries were asked {'every time' if exact else 'not every time'}; "
        f"pilot, check of the rank and verification took {'no more' if spare <= 0 else 'more'} than 2(r + {EXTRA}) "
        f"queries on top, whatever d is; the worst relative error was {worst:.1e}.",
    )


EXPERIMENT = Experiment(
    name="cross",
    result="Low rank at the degrees of freedom",
    claim="A head of unknown rank r is recovered from d + r(2d - r) value queries, the number of its unknowns.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="billed", group=("r",)),
    code="unsoftmax/learners/single/cross.py",
)
