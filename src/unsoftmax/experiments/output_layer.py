"""The output layer of a language model: its width and row space from few prompts, whatever an answer shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax import theory
from unsoftmax.adapters.logits import logit_oracle
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.output.width import ROW_SPACE
from unsoftmax.learners.output_layer import OutputLayer
from unsoftmax.models.distance import distance
from unsoftmax.models.output_layer import OutputLayer as Layer
from unsoftmax.models.token_layer import TokenLayer
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.run.recovery import recover
from unsoftmax.spec import Shows

TOP = 20
"""Tokens that a service names which lets them be chosen by a bias."""

WAYS: dict[str, tuple[Shows, int | None]] = {
    "all logits": ("logits", None),
    "log-probabilities": ("log-probabilities", None),
    "4 decimals": ("log-probabilities", 4),
    "chosen tokens": ("chosen", None),
}
"""What an answer shows, and the decimals it is rounded to."""


def points(quick: bool) -> list[Row]:
    sizes, seeds = (((16, 200), (48, 400)), 2) if quick else (((16, 400), (64, 2000), (256, 5000)), 10)
    return [
        {"width": d, "vocabulary": V, "shows": way, "seed": seed}
        for d, V in sizes
        for way in WAYS
        for seed in range(seeds)
        if way != "chosen tokens" or V <= 2000
    ]


def served(model: TokenLayer, shows: Shows, decimals: int | None) -> Oracle:
    """The model behind a service that answers so."""

    def log_probabilities(ids: Array) -> Array:
        logits = model(ids)
        shown = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return shown if decimals is None else np.round(shown, decimals)

    def chosen(ids: Array, tokens: Array) -> Array:
        return np.take_along_axis(log_probabilities(ids), tokens, axis=1)

    if shows == "chosen":
        return logit_oracle(chosen, model.vocabulary, shows=shows, top=TOP)
    return logit_oracle(model if shows == "logits" else log_probabilities, model.vocabulary, shows=shows)


def row(point: Row) -> Row:
    d, V = point["width"], point["vocabulary"]
    model = TokenLayer.random(d, V, heads=2, length=8, seed=point["seed"])
    shows, decimals = WAYS[point["shows"]]
    form = theory.output_layer_requests(d)
    if shows == "chosen":
        form = theory.output_layer_chosen_requests(V, d, TOP)
    try:
        recovery = recover(served(model, shows, decimals), OutputLayer(), seed=point["seed"])
    except UnsoftmaxError:
        return {"right": False, "error": 1.0, "stated": 0.0, "requests": 0, "closed_form": form}
    truth = Layer.of_unembedding(model.basis.T, centred=shows != "logits")
    stated = next(claim.bound for claim in recovery.certificate if claim.name == ROW_SPACE)
    return {
        "right": recovery.model.width == d,
        "error": distance(recovery.model, truth),
        "stated": stated,
        "requests": recovery.usage.phases["main"],
        "closed_form": form,
    }


def judge(rows: Sequence[Row]) -> Verdict:
    right = sum(bool(r["right"]) for r in rows)
    kept = sum(r["error"] <= r["stated"] for r in rows)
    form = sum(r["requests"] == r["closed_form"] for r in rows)
    exact = max((r["error"] for r in rows if r["shows"] != "4 decimals"), default=0.0)
    said = (
        f"the width was right in {right} of {len(rows)} runs, the row space within the stated angle in {kept} (at most "
        f"{exact:.1e} off unless rounded), requests were those of the closed form in {form}."
    )
    return Verdict(right == kept == form == len(rows) and exact <= 1e-10, said)


EXPERIMENT = Experiment(
    name="output-layer",
    result="Output layer of a language model",
    claim="d + 1 to d + 31 prompts show the hidden width d and the row space of the unembedding.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="width", y="requests", group=("shows",)),
    code="unsoftmax/learners/output_layer.py",
)
