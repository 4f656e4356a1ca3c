"""What an explanation gives away: input gradients and attention maps beside the value, at the count they allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unsoftmax import learners, theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.models.base import Model
from unsoftmax.models.distance import distance
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import SingleHead
from unsoftmax.run.recovery import recover

ERROR = 1e-12
"""Largest relative error of every parameter."""

BESIDE = 8
"""Queries beside the count that the numbers of an answer allow."""

RANK = 4
"""Rank of the low-rank heads, if the dimension allows."""

HEADS = 4
"""Heads of the multi-head targets."""

LENGTH = 32
"""Tokens of a sequence whose attention map is shown."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((16,), 2) if quick else ((16, 32, 64), 5)
    cases = [("gradient", "full"), ("gradient", "low rank"), ("gradient", "heads")]
    cases += [("attention", "full"), ("attention", "low rank"), ("attention", "heads")]
    return [{"shown": k, "target": t, "d": d, "seed": s} for k, t in cases for d in dims for s in range(seeds)]


def row(point: Row) -> Row:
    d, seed = point["d"], point["seed"]
    target: Model
    learner: Any
    if point["target"] == "heads":
        target, learner, unknowns, heads = (
            MultiHead.random(d, HEADS, norm=2.0, seed=seed),
            learners.MultiHead(),
            d * d,
            HEADS,
        )
    elif point["target"] == "low rank":
        target, learner = SingleHead.random(d, rank=RANK, norm=2.0, seed=seed), learners.LowRank()
        unknowns, heads = theory.low_rank_unknowns(d, RANK), 1
    else:
        target, learner, unknowns, heads = SingleHead.random(d, norm=2.0, seed=seed), learners.SingleHead(), d * d, 1
    found = recover(oracle(target, kind=point["shown"]), learner, seed=seed)
    asked = found.usage.billed - found.usage.phases["verify"]
    if point["shown"] == "gradient":
        allowed = (2 * RANK if point["target"] == "low rank" else d) + BESIDE
        # Query tokens for which two heads nearly share a plane are replaced.
        allowed += d // 4 if point["target"] == "heads" else 0
    else:
        allowed = int(1.1 * max(unknowns / (LENGTH - 1), heads * d)) + BESIDE
    return {"error": distance(found.model, target), "queries": asked, "allowed": allowed}


def judge(rows: Sequence[Row]) -> Verdict:
    worst = max(r["error"] for r in rows)
    over = sum(r["queries"] > r["allowed"] for r in rows)
    largest = max(r["d"] for r in rows)
    few = max(r["queries"] for r in rows if (r["shown"], r["target"], r["d"]) == ("gradient", "full", largest))
    return Verdict(
        worst <= ERROR and not over,
        f"every target came out to {worst:.1g}; {over} of {len(rows)} asked more than the numbers of an answer allow; "
        f"a full head of dimension {largest} took {few} gradients where values take {largest * largest + largest}.",
    )


EXPERIMENT = Experiment(
    name="explanations",
    result="Explanations",
    claim="d + 8 input gradients (several heads: d/4 more), or about d^2 / 31 attention maps of 32 tokens, give heads.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="queries", group=("shown", "target")),
    code="unsoftmax/learners/explained/gradient.py",
)
