"""Token access: a head over a finite vocabulary at about its degrees of freedom, weak or strong."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.token_head import TokenHead
from unsoftmax.models.distance import distance
from unsoftmax.models.token_head import TokenHead as Head
from unsoftmax.run.recovery import recover

RANK = 8
"""Rank of the scores of every target, far below the size of its vocabulary."""

BARS = {1.0: (1e-10, 1.3), 4.0: (1e-8, 1.5), 8.0: (1e-6, 1.8)}
"""Standard deviation of the scores -> relative error of the gaps, billed queries per unknown."""


def points(quick: bool) -> list[Row]:
    sizes, seeds = ((200, 400), 2) if quick else ((200, 400, 800, 1600), 10)
    return [
        {"vocabulary": V, "deviation": deviation, "seed": seed}
        for V in sizes
        for deviation in BARS
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    target = Head.random(point["vocabulary"], RANK, point["deviation"], seed=point["seed"])
    unknowns = theory.token_head_unknowns(point["vocabulary"], RANK)
    try:
        recovery = recover(token_oracle(target), TokenHead(), seed=point["seed"])
    except UnsoftmaxError as failure:
        billed = failure.recovery.usage.billed if failure.recovery else 0
        return {"error": 1.0, "ratio": billed / unknowns, "tokens_left_out": point["vocabulary"]}
    return {
        "error": distance(recovery.model, target),
        "ratio": recovery.usage.billed / unknowns,
        "tokens_left_out": point["vocabulary"] - len(recovery.model.known),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    met = all(r["error"] <= BARS[r["deviation"]][0] and r["ratio"] <= BARS[r["deviation"]][1] for r in rows)
    said = []
    for deviation in BARS:
        these = [r for r in rows if r["deviation"] == deviation]
        if these:
            error, ratio = max(r["error"] for r in these), max(r["ratio"] for r in these)
            said.append(f"deviation {deviation:g}: error at most {error:.1e}, {ratio:.2f} queries per unknown")
    left_out = sum(r["tokens_left_out"] for r in rows)
    return Verdict(met and left_out == 0, "; ".join(said) + f"; {left_out} tokens could not be read.")


EXPERIMENT = Experiment(
    name="token-access",
    result="Token access",
    claim="A head over token ids of unknown embeddings is recovered at about one query per unknown, strong heads too.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="vocabulary", y="error", group=("deviation",)),
    code="unsoftmax/learners/token_head.py",
)
