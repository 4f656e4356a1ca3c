"""Deeper than one layer: every head of every layer in its place, and refusals where there is no stack of this kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unsoftmax import learners
from unsoftmax.adapters.callable import oracle
from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict, grouped
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.distance import distance
from unsoftmax.run.recovery import recover

ERRORS = {"attention": 1e-12, "networks": 1e-8, "final norm": 1e-8, "no norm": 1e-10}
"""Kind of stack -> largest relative error of every head: behind networks answers are extrapolated to infinity."""

ENOUGH = 0.9
"""Share of the stacks of each kind that must be recovered; the others must be refused."""

KINDS: dict[str, dict[str, Any]] = {
    "attention": {"causal": True},
    "networks": {"network": 16, "activation": "relu"},
    "final norm": {"network": 16, "final_norm": True},
    "no norm": {"norm": None, "heads": 1, "head_dim": 5},
}
"""Arguments of AttentionStack.random beyond two layers of two heads of rank two."""

OUTSIDE = "norm behind"
"""A layer that norms after adding: no stack that norms first."""


def points(quick: bool) -> list[Row]:
    dims, seeds = ((9,), 3) if quick else ((9, 16), 20)
    return [{"target": t, "d": d, "seed": s} for t in (*KINDS, OUTSIDE) for d in dims for s in range(seeds)]


def row(point: Row) -> Row:
    d, seed = point["d"], point["seed"]
    target: Any
    if point["target"] == OUTSIDE:
        target = AttentionLayer.random(d, 1, norm="post", residual=True, seed=seed)
    else:
        shape = {"layers": 2, "heads": 2, "head_dim": 2} | KINDS[point["target"]]
        target = AttentionStack.random(d, seed=seed, **shape)
    try:
        found = recover(oracle(target), learners.AttentionStack(), seed=seed)
    except (ModelMismatch, NotIdentifiable):
        return {"recovered": False, "error": 0.0, "kept": True}
    stated = found.certificate.stated_error
    error = distance(found.model, target) if isinstance(target, AttentionStack) else float("inf")
    return {"recovered": True, "error": error, "kept": stated is not None and error <= stated}


def judge(rows: Sequence[Row]) -> Verdict:
    stacks = [r for r in rows if r["target"] != OUTSIDE]
    false = sum(bool(r["recovered"]) for r in rows if r["target"] == OUTSIDE)
    good = {
        kind: [bool(r["recovered"]) and r["error"] <= ERRORS[kind] for r in part]
        for (kind,), part in grouped(stacks, "target").items()
    }
    broken = sum(not r["kept"] for r in stacks)
    shares = ", ".join(f"{sum(ok)} of {len(ok)} ({kind}, to {ERRORS[kind]:g})" for kind, ok in good.items())
    return Verdict(
        all(sum(ok) >= ENOUGH * len(ok) for ok in good.values()) and not broken and not false,
        f"all heads of all layers were recovered in their order in {shares}; {broken} stated errors were exceeded; "
        f"{false} of {len(rows) - len(stacks)} layers with their norm behind were called a stack.",
    )


EXPERIMENT = Experiment(
    name="deep-stacks",
    result="Deep stacks",
    claim="Every head of every layer of a pre-norm stack is recovered from the last token's vector, in its layer.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(x="d", y="error", group=("target",)),
    code="unsoftmax/learners/attention_stack.py",
)
