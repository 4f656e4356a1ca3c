"""Section 4.1: a one-layer Transformer by the odd part (two queries per probe) and by rays (one)."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.transformer import Transformer
from unsoftmax.models.distance import distance, relative
from unsoftmax.models.transformer import Transformer as Model
from unsoftmax.run.recovery import recover

SCORES = 1e-11
"""Largest relative error of W that passes."""

WHOLE = 1e-8
"""Largest distance of the whole model that passes; the network's narrow cells lose three digits more than W."""

HEAD_PHASES = ("values", "main")


def points(quick: bool) -> list[Row]:
    sizes, seeds = (((8, 8), (16, 16), (16, 64)), 3) if quick else (((8, 8), (16, 64), (32, 32), (64, 256)), 10)
    return [
        {"method": method, "d": d, "m": m, "seed": seed}
        for d, m in sizes
        for method in ("odd", "ray")
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d = point["d"]
    target = Model.random(d, point["m"], seed=point["seed"])
    found = recover(oracle(target), Transformer(method=point["method"]), seed=point["seed"])
    odd = theory.transformer_queries(d, 0)
    return {
        "error": relative(found.model.W, target.W),
        "whole": distance(found.model, target),
        "queries": sum(found.usage.phases.get(phase, 0) for phase in HEAD_PHASES),
        "theorem": odd if point["method"] == "odd" else odd // 2,
        "billed": found.usage.billed,
    }


def judge(rows: Sequence[Row]) -> Verdict:
    exact = all(r["queries"] == r["theorem"] for r in rows)
    scores, whole = max(r["error"] for r in rows), max(r["whole"] for r in rows)
    return Verdict(
        exact and scores <= SCORES and whole <= WHOLE,
        f"behind the network the attention cost 2(d + d^2) queries by the odd part and d + d^2 by rays "
        f"{'every time' if exact else 'not every time'}; the worst relative error was {scores:.1e} in W and "
        f"{whole:.1e} in the network's neurons.",
    )


EXPERIMENT = Experiment(
    name="section-4.1",
    result="Section 4.1 (one-layer Transformer)",
    claim="Given its network, a Transformer's attention is recovered from 2(d + d^2) value queries, or half as many.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("method",)),
    code="unsoftmax/learners/transformer.py",
)
