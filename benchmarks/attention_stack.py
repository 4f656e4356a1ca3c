"""Stacks: queries over unknowns, errors of heads and answers, share solved, and no wrong model under a certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.models.stack_distance import stack_gaps


@dataclass(frozen=True)
class Cell:
    """A kind of stack and its limits: error of W, ratio (None: reported only)."""

    layers: int
    heads: int
    dim: int
    rank: int
    error: float
    ratio: float | None = None
    kind: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        rest = ", ".join(f"{key} {value}" for key, value in self.kind.items())
        return f"{self.layers} x {self.heads}, d = {self.dim}, rank {self.rank}{', ' if rest else ''}{rest}"


PLAIN = (
    Cell(2, 2, 16, 4, 1e-13, 11.0),
    Cell(4, 2, 16, 4, 1e-13, 7.0, {"causal": True}),
    Cell(3, 4, 16, 4, 1e-13, 7.0, {"norm": "rms"}),
)
"""Attention alone: bars on W, on answers and on queries."""

NETWORKS = (
    Cell(2, 2, 16, 8, 1e-9, None, {"network": 32}),
    Cell(4, 2, 16, 4, 1e-9, None, {"network": 32, "activation": "relu", "causal": True}),
    Cell(3, 4, 16, 4, 1e-9, None, {"network": 32, "activation": "silu", "gated": True, "norm": "rms"}),
)
"""With feed-forward networks: bars on W."""

PLAIN_NO_NORM = (
    Cell(2, 1, 16, 16, 1e-10, 6.0, {"norm": None}),
    Cell(3, 1, 16, 16, 1e-10, 6.0, {"norm": None, "causal": True}),
    Cell(2, 2, 16, 8, 1e-10, 6.0, {"norm": None}),
)
"""No norm before the layers: bars on W and on queries."""

FINAL_NORM = (Cell(4, 2, 16, 4, 1e-6, None, {"network": 32, "final_norm": True}),)
"""Behind a final norm: bars on W."""

WIDE = Cell(12, 4, 64, 16, 1e-6, None, {"network": 128, "causal": True})
"""48 heads: nothing is polished."""

SEEDS = {False: 2, True: 100}
"""Stacks per cell, and per cell in the long run."""

FIRST = 5000
"""First seed: none below was looked at while the method was made."""


def rows(large: bool) -> Iterator[Row]:
    for cell in PLAIN + NETWORKS + PLAIN_NO_NORM + FINAL_NORM:
        yield from measured(cell, SEEDS[large])
    if large:
        yield from measured(WIDE, 10)


def measured(cell: Cell, seeds: int) -> Iterator[Row]:
    """Share refused, worst errors of those solved, and wrong models that a certificate covers."""
    found: list[dict[str, float]] = []
    for seed in range(FIRST, FIRST + seeds):
        result = one(cell, seed)
        if result is not None:
            found.append(result)
    figures = {"stacks": seeds, "solved": len(found)}
    yield Row(f"{cell.name}: share refused", 1 - len(found) / seeds, 0.1, "stacks without a model", figures)
    if not found:
        return
    worst = {key: max(result[key] for result in found) for key in found[0]}
    figures = figures | {f"worst {key}": value for key, value in worst.items()}
    silent = sum(result["error"] > max(result["claim"], cell.error) for result in found)
    yield Row(f"{cell.name}: silent errors", silent, 0.0, "wrong models under a certificate that holds", figures)
    yield Row(f"{cell.name}: W", worst["error"] / cell.error, 1.0, "worst error of a head over its bar", figures)
    if "answers" in worst:
        yield Row(f"{cell.name}: f", worst["answers"] / cell.error, 1.0, "worst error of answers over its bar", figures)
    yield Row(f"{cell.name}: queries", worst["ratio"], cell.ratio, "numbers received over unknowns", figures)


def one(cell: Cell, seed: int) -> dict[str, float] | None:
    """One stack: None if it was refused."""
    target = us.models.AttentionStack.random(cell.dim, cell.layers, cell.heads, cell.rank, seed=seed, **cell.kind)
    start = time.perf_counter()
    try:
        recovery = us.recover(us.oracle(target), us.learners.AttentionStack(), seed=seed)
    except (us.errors.ModelMismatch, us.errors.NotIdentifiable):
        return None
    model: Any = recovery.model
    rms = cell.kind.get("norm") == "rms"
    unknowns = us.theory.attention_stack_unknowns(cell.dim, cell.layers, cell.heads, cell.rank, rms)
    if cell.kind.get("norm", "layer") is None:
        unknowns = us.theory.plain_stack_unknowns(cell.dim, cell.layers, cell.heads, cell.rank)
    asked = recovery.usage.billed - recovery.usage.phases.get("verify", 0)
    claims = [claim.bound for claim in recovery.certificate.claims if claim.name == "relative parameter error"]
    right = model.heads == target.heads
    result = {
        "error": stack_gaps(model, target)["W"] if right else float("inf"),
        "claim": claims[0],
        "ratio": asked * cell.dim / unknowns,
        "seconds": time.perf_counter() - start,
    }
    if model.networks is None:
        X = np.random.default_rng(seed).standard_normal((50, 9, cell.dim))
        y = target(X)
        result["answers"] = float(np.linalg.norm(model(X) - y) / np.linalg.norm(y - X[:, -1]))
    return result
