"""Multi-head attention: queries and errors of generic heads, the published precision, and a trained layer.

multi_head_bars.py has the same on twenty models per cell, and the harder targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from benchmarks.multi_head_bars import errors as parted
from tests.weights import HEADS, minilm_head
from unsoftmax.models.base import attention_weights

PUBLISHED = 2.0**-51
"""ePrint 2026/1678, d = 8, H = 6, in a metric it does not state; ours is the relative Frobenius error of W."""


def rows(large: bool) -> Iterator[Row]:
    for d, H, r, limit in [(16, 2, None, 1.4), (16, 4, None, 1.4), (32, 4, None, 1.2), (32, 4, 8, 1.6)]:
        yield from generic(d, H, r, limit, 3)
    yield from last_digits(2)
    for layer in (0, 5) if large else ():
        yield from trained(layer)


def generic(d: int, H: int, r: int | None, limit: float, seeds: int) -> Iterator[Row]:
    unknowns, spent, errors = us.theory.multi_head_unknowns(d, H, r), [], []
    for seed in range(seeds):
        target = us.models.MultiHead.random(d, H, rank=r, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
        spent.append(recovery.usage.billed)
        errors.append(parted(recovery.model, target)[0])
    name = f"d = {d}, H = {H}" + (f", r = {r}" if r else "")
    figures = {"billed": spent, "unknowns": unknowns, "rational": us.theory.rational_queries(d, H)}
    yield Row(f"queries, {name}", median(spent) / unknowns, limit, "billed / unknowns, median", figures)
    yield Row(f"error, {name}", median(errors) / 1e-10, 1.0, "median relative error of W / 1e-10", {"errors": errors})
    yield Row(f"worst error, {name}", max(errors) / 1e-9, 1.0, "worst relative error of W / 1e-9")


def last_digits(seeds: int) -> Iterator[Row]:
    d, H = 8, 6
    limit, spent, errors = us.theory.rational_queries(d, H), [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        target = us.models.MultiHead(rng.standard_normal((H, d, d)), rng.standard_normal((H, d)))
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(polish=True), seed=seed)
        spent.append(recovery.usage.billed)
        errors.append(parted(recovery.model, target)[0])
    figures = {"errors": errors, "published": PUBLISHED}
    yield Row("polished, d = 8, H = 6", median(errors) / 1e-15, 1.0, "median relative Frobenius error / 1e-15", figures)
    yield Row("polished, worst", max(errors) / 4e-15, 1.0, "worst relative Frobenius error / 4e-15")
    yield Row("polished, queries", max(spent) / limit, 1.0, "most billed / (4Hd^2 - 2H + 1)", {"billed": spent})


class Factored:
    """A layer evaluated through its rank-32 factors, as the real one is."""

    accepts_counts = True

    def __init__(self, heads: list[us.models.LowRankHead]) -> None:
        self.heads, self.dim = heads, heads[0].dim

    def __call__(self, tokens: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        flat = tokens.reshape(-1, self.dim)
        total = np.zeros(len(tokens))
        for head in self.heads:
            keys = (flat @ head.K).reshape(*tokens.shape[:2], -1)
            scores = np.einsum("bnr,br->bn", keys, tokens[:, -1] @ head.Q)
            total += (attention_weights(scores, counts) * (tokens @ head.v)).sum(axis=1)
        return total


def trained(layer: int) -> Iterator[Row]:
    """All heads of a MiniLM layer, one output coordinate, biases removed."""
    heads = [minilm_head(layer, h) for h in range(HEADS)]
    target = us.models.MultiHead(np.array([h.W for h in heads]), np.array([h.v for h in heads]))
    recovery = us.recover(us.oracle(Factored(heads)), us.learners.MultiHead(), seed=1)
    unknowns = us.theory.multi_head_unknowns(target.dim, HEADS, heads[0].rank)
    error = parted(recovery.model, target)[0]
    seconds = {"seconds": recovery.usage.seconds, "target": recovery.usage.target_seconds}
    yield Row(f"MiniLM layer {layer}, queries", recovery.usage.billed / unknowns, 1.15, "billed / unknowns", seconds)
    yield Row(f"MiniLM layer {layer}, error", error / 1e-9, 1.0, "relative error of W / 1e-9", {"error": error})
