"""Generic multi-head attention: heads found, errors, queries against the unknowns and against 4Hd^2 - 2H + 1."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.multi_head import MultiHead
from unsoftmax.models.distance import distance
from unsoftmax.models.multi_head import MultiHead as Heads
from unsoftmax.run.recovery import recover

ERROR = 1e-9
"""Largest relative error that passes, up to the order of the heads: seven digits above rounding are left to the
conditioning of heads that are drawn at random."""


def points(quick: bool) -> list[Row]:
    sizes = ((8, 2), (16, 2), (16, 4), (24, 4)) if quick else ((8, 2), (16, 2), (16, 4), (32, 4), (32, 8), (64, 8))
    return [{"d": d, "H": H, "seed": seed} for d, H in sizes for seed in range(3 if quick else 20)]


def row(point: Row) -> Row:
    d, H = point["d"], point["H"]
    target = Heads.random(d, H, seed=point["seed"])
    found = recover(oracle(target), MultiHead(), seed=point["seed"])
    return {
        "error": distance(found.model, target),
        "found": found.model.heads,
        "queries": found.usage.phases["values"] + found.usage.phases["main"],
        "closed_form": theory.multi_head_queries(d, H),
        "billed": found.usage.billed,
        "rational": theory.rational_queries(d, H),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    right = all(r["found"] == r["H"] for r in rows)
    worst = max(r["error"] for r in rows)
    exact = all(r["queries"] == r["closed_form"] for r in rows)
    share = max(r["billed"] / r["rational"] for r in rows)
    return Verdict(
        right and exact and worst <= ERROR and share < 1,
        f"the number of heads was found {'every time' if right else 'not every time'}, values and matrices took H d "
        f"(d + 1) queries {'every time' if exact else 'not every time'}, all in all at most {share:.2f} of the 4Hd^2 - "
        f"2H + 1 of rational interpolation, and the worst relative error was {worst:.1e}.",
    )


EXPERIMENT = Experiment(
    name="multi-head",
    result="Generic multi-head attention",
    claim="H generic heads, H not given, are recovered up to order from one query per unknown and O(H d) more.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="billed", group=("H",)),
    code="unsoftmax/learners/multi_head.py",
)
