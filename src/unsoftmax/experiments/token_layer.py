"""Circuits of one-layer language models: scores and values of every head at about their unknowns."""

from __future__ import annotations

from collections.abc import Sequence

from unsoftmax import theory
from unsoftmax.adapters.logits import logit_oracle
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.token_layer import TokenLayer
from unsoftmax.models.distance import distance
from unsoftmax.models.token_layer import TokenLayer as Layer
from unsoftmax.run.recovery import recover

PLACES = 12
"""Places of every target."""

RATIO = 2.0
"""Prompts over unknowns, beside the output layer's, over the d numbers an answer holds."""

ERROR = 1e-8
"""Relative error of the worst circuit."""


def points(quick: bool) -> list[Row]:
    sizes, seeds = (((16, 1, 100), (16, 2, 100)), 2) if quick else (((16, 2, 200), (24, 3, 200), (32, 4, 200)), 5)
    return [
        {"width": d, "heads": H, "vocabulary": V, "deviation": deviation, "seed": seed}
        for d, H, V in sizes
        for deviation in (0.5, 1.0)
        for seed in range(seeds)
    ]


def row(point: Row) -> Row:
    d, H, V = point["width"], point["heads"], point["vocabulary"]
    target = Layer.random(d, V, H, PLACES, point["deviation"], seed=point["seed"])
    unknowns = theory.token_layer_unknowns(V, d, H, d // H, PLACES) - theory.output_layer_unknowns(V, d)
    try:
        oracle = logit_oracle(target, V, max_length=PLACES)
        recovery = recover(oracle, TokenLayer(), seed=point["seed"])
    except UnsoftmaxError as failure:
        billed = failure.recovery.usage.billed if failure.recovery else 0
        return {"error": 1.0, "stated": 0.0, "ratio": billed * d / unknowns}
    stated = recovery.certificate.stated_error
    asked = recovery.usage.billed - recovery.usage.phases["verify"]
    return {"error": distance(recovery.model, target), "stated": stated, "ratio": asked * d / unknowns}


def judge(rows: Sequence[Row]) -> Verdict:
    error, ratio = (max(r[name] for r in rows) for name in ("error", "ratio"))
    kept = sum(r["error"] <= r["stated"] for r in rows)
    said = (
        f"the worst circuit was {error:.1e} off at {ratio:.2f} times the prompts that its unknowns take at least; "
        f"{kept} of {len(rows)} errors were within those stated."
    )
    return Verdict(error <= ERROR and ratio <= RATIO and kept == len(rows), said)


EXPERIMENT = Experiment(
    name="token-layer",
    result="Circuits of a one-layer language model",
    claim="Scores and values of every head of a one-layer attention-only language model show in ids and logits.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="width", y="error", group=("heads", "deviation"), log_x=False),
    code="unsoftmax/learners/token_layer.py",
)
