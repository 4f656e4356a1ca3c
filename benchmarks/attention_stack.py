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
    """A kind of stack and its limits: error of W, ratio (None: reported only); `turns` are kinds taken by turns."""

    layers: int
    heads: int
    dim: int
    rank: int
    error: float
    ratio: float | None = None
    kind: dict[str, Any] = field(default_factory=dict)
    turns: tuple[dict[str, Any], ...] = ({},)
    dtype: str = "float64"

    def target(self, seed: int) -> us.models.AttentionStack:
        """The stack of one seed."""
        kind = self.kind | self.turns[seed % len(self.turns)]
        model = us.models.AttentionStack.random(self.dim, self.layers, self.heads, self.rank, seed=seed, **kind)
        return model.astype(self.dtype)

    @property
    def name(self) -> str:
        rest = "".join(f", {key} {value}" for key, value in self.kind.items())
        rest += f", {len(self.turns)} kinds by turns" if len(self.turns) > 1 else ""
        rest += f", {self.dtype}" if self.dtype != "float64" else ""
        return f"{self.layers} x {self.heads}, d = {self.dim}, rank {self.rank}{rest}"


NORMS: tuple[dict[str, Any], ...] = ({}, {"causal": True}, {"norm": "rms"}, {"norm": "rms", "causal": True})
"""Norms and masks that seeds take by turns."""

ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"network": 32},
    {"network": 32, "activation": "relu", "causal": True},
    {"network": 32, "activation": "silu", "gated": True, "norm": "rms"},
)
"""Networks that seeds take by turns: GELU, ReLU and SwiGLU."""

PLAIN = (
    Cell(2, 2, 16, 4, 1e-13, 11.0, turns=NORMS),
    Cell(4, 2, 16, 4, 1e-13, 7.0, turns=NORMS),
    Cell(3, 4, 16, 4, 1e-13, 7.0, turns=NORMS),
)
"""Attention alone: bars on W, on answers and on queries."""

SHORT = (Cell(2, 2, 16, 4, 2e-6, None, turns=NORMS, dtype="float32"),)
"""float32: the bar is on answers; W is as good as its claim."""

NETWORKS = (
    Cell(2, 2, 16, 8, 1e-9, None, turns=ACTIVATIONS),
    Cell(4, 2, 16, 4, 1e-9, None, turns=ACTIVATIONS),
    Cell(3, 4, 16, 4, 1e-9, None, turns=ACTIVATIONS),
)
"""With feed-forward networks: bars on W."""

PLAIN_NO_NORM = (
    Cell(2, 1, 16, 16, 1e-10, 6.0, {"norm": None}, ({}, {"causal": True})),
    Cell(3, 1, 16, 16, 1e-10, 6.0, {"norm": None}, ({}, {"causal": True})),
    Cell(2, 2, 16, 8, 1e-10, 6.0, {"norm": None}, ({}, {"causal": True})),
)
"""No norm before the layers: bars on W and on queries."""

FINAL_NORM = (Cell(4, 2, 16, 4, 1e-6, None, {"final_norm": True}, (*ACTIVATIONS, {})),)
"""Behind a final norm: bars on W."""

WIDE = Cell(12, 4, 64, 16, 1e-6, None, {"network": 128, "causal": True})
"""48 heads: nothing is polished."""

SEEDS = {False: 2, True: 100}
"""Stacks per cell, and per cell in the long run."""

FIRST = 5000
"""First seed: none below was looked at while the method was made."""


def rows(large: bool) -> Iterator[Row]:
    for cell in PLAIN + SHORT + NETWORKS + PLAIN_NO_NORM + FINAL_NORM:
        yield from measured(cell, SEEDS[large])
    if large:
        yield from measured(WIDE, 10)


def measured(cell: Cell, seeds: int) -> Iterator[Row]:
    """Share refused, worst errors of those solved, and wrong models that a certificate covers."""
    found: list[dict[str, float]] = []
    for seed in range(FIRST, FIRST + seeds):
        try:
            found.append(one(cell, seed))
        except (us.errors.ModelMismatch, us.errors.NotIdentifiable):
            continue
    figures: dict[str, float] = {"stacks": seeds, "solved": len(found)}
    yield Row(f"{cell.name}: share refused", 1 - len(found) / seeds, 0.1, "stacks without a model", figures)
    if not found:
        return
    worst = {key: max(result[key] for result in found) for key in found[0]}
    figures = figures | {f"worst {key}": value for key, value in worst.items()}
    silent = sum(result["error"] > result["claim"] for result in found)
    yield Row(f"{cell.name}: silent errors", silent, 0.0, "wrong models under a certificate that holds", figures)
    if cell.dtype == "float64":
        yield Row(f"{cell.name}: W", worst["error"] / cell.error, 1.0, "worst error of a head over its bar", figures)
    if "answers" in worst:
        yield Row(f"{cell.name}: f", worst["answers"] / cell.error, 1.0, "worst error of answers over its bar", figures)
    yield Row(f"{cell.name}: queries", worst["ratio"], cell.ratio, "numbers received over unknowns", figures)


def one(cell: Cell, seed: int) -> dict[str, float]:
    """One stack: its error is infinite where layers, heads, norm or mask are not the target's."""
    target = cell.target(seed)
    start = time.process_time()
    recovery = us.recover(us.oracle(target), us.learners.AttentionStack(), seed=seed)
    model: Any = recovery.model
    unknowns = us.theory.attention_stack_unknowns(cell.dim, cell.layers, cell.heads, cell.rank, target.norm == "rms")
    if target.norm is None:
        unknowns = us.theory.plain_stack_unknowns(cell.dim, cell.layers, cell.heads, cell.rank)
    asked = recovery.usage.billed - recovery.usage.phases.get("verify", 0)
    claims = [claim.bound for claim in recovery.certificate.claims if claim.name == "relative parameter error"]
    forms = [(stack.heads, stack.norm, stack.causal, stack.final_norm) for stack in (model, target)]
    result = {
        "error": stack_gaps(model, target)["W"] if forms[0] == forms[1] else float("inf"),
        "claim": claims[0],
        "ratio": asked * cell.dim / unknowns,
        "seconds": time.process_time() - start,
    }
    if model.networks is None:
        X = np.random.default_rng(seed).standard_normal((50, 9, cell.dim)).astype(cell.dtype).astype(float)
        y = target.astype("float64")(X)
        off = model.astype("float64")(X) - y
        result["answers"] = float(np.linalg.norm(off) / np.linalg.norm(y - X[:, -1]))
    return result
