"""Proposition C.2: heads in known orthogonal subspaces, from sum_h (d_h + d_h^2) value queries."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.experiments.orthogonal_heads import drawn
from unsoftmax.learners.orthogonal_heads import OrthogonalHeads
from unsoftmax.models.distance import distance
from unsoftmax.run.recovery import recover

ERROR = 1e-12
"""Largest relative error that passes, up to the order of the heads: some thousand units of rounding, for up to 16 heads
of up to 16 dimensions."""


def points(quick: bool) -> list[Row]:
    shapes = ([4, 4], [3, 5, 8], [8, 8, 8, 8]) if quick else ([4, 4], [3, 5, 8], [8] * 4, [16] * 4, [8] * 16)
    seeds = 3 if quick else 20
    return [{"dims": dims, "d": sum(dims), "H": len(dims), "seed": seed} for dims in shapes for seed in range(seeds)]


def row(point: Row) -> Row:
    target, bases = drawn(point["dims"], point["seed"])
    found = recover(oracle(target), OrthogonalHeads(bases), seed=point["seed"])
    return {
        "error": distance(found.model, target),
        "queries": found.usage.phases["values"] + found.usage.phases["main"],
        "theorem": theory.orthogonal_heads_queries(point["dims"]),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows)
    exact = all(r["queries"] == r["theorem"] for r in rows)
    return Verdict(
        exact and worst <= ERROR,
        f"sum_h (d_h + d_h^2) queries were asked {'every time' if exact else 'not every time'}, and the worst relative "
        f"error up to the order of heads was {worst:.1e}.",
    )


EXPERIMENT = Experiment(
    name="proposition-c.2",
    result="Proposition C.2",
    claim="Heads in known orthogonal subspaces are recovered from sum_h (d_h + d_h^2) value queries.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("H",)),
    code="unsoftmax/learners/orthogonal_heads.py",
)
