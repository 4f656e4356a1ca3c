"""The conjecture of Appendix C: unknown orthogonal subspaces from Hessians, by simultaneous block diagonalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.adapters.callable import oracle
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.experiments.orthogonal_heads import drawn
from unsoftmax.learners.orthogonal_heads import OrthogonalHeads
from unsoftmax.models.distance import distance
from unsoftmax.run.recovery import recover

ERROR = 1e-7
"""Largest relative error of a run that answered. Second differences keep about half of float64's sixteen digits."""


def points(quick: bool) -> list[Row]:
    shapes = ([4, 4], [3, 5, 8], [6, 6, 6]) if quick else ([4, 4], [3, 5, 8], [6, 6, 6], [8] * 4, [4] * 8)
    seeds = 4 if quick else 20
    return [{"dims": dims, "d": sum(dims), "H": len(dims), "seed": seed} for dims in shapes for seed in range(seeds)]


def row(point: Row) -> Row:
    target, _ = drawn(point["dims"], point["seed"])
    try:
        found = recover(oracle(target), OrthogonalHeads(), seed=point["seed"])
    except UnsoftmaxError:
        # Not trusted and said so: a refusal, drawn at error 1.
        return {"error": 1.0, "found": 0, "refused": True, "queries": 0}
    error = min(1.0, float(np.nan_to_num(distance(found.model, target), nan=1.0)))
    return {"error": error, "found": found.model.heads, "refused": False, "queries": found.usage.billed}


def judge(rows: Sequence[Row]) -> Verdict:
    answered = [r for r in rows if not r["refused"]]
    wrong = sum(r["found"] != r["H"] or r["error"] > ERROR for r in answered)
    worst = max((r["error"] for r in answered), default=1.0)
    said = ", ".join(
        f"{sum(not r['refused'] for r in members)} of {len(members)} at d = {d}, H = {H}"
        for (d, H), members in grouped(rows, "d", "H").items()
    )
    return Verdict(
        wrong == 0 and len(answered) >= 0.9 * len(rows),
        f"subspaces were found and trusted in {said}; of these {wrong} were wrong, and the worst relative error was "
        f"{worst:.1e}.",
    )


EXPERIMENT = Experiment(
    name="hessian-conjecture",
    result="The Hessian conjecture (Appendix C)",
    claim="Unknown orthogonal subspaces of generic heads follow from Hessians by simultaneous block diagonalisation.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("H",)),
    code="unsoftmax/learners/orthogonal_heads.py",
)
