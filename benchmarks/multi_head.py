"""Multi-head attention: queries and errors of generic heads, the published precision, and a trained layer."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np
from scipy.optimize import linear_sum_assignment
from tests.weights import HEADS, minilm_head

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.models.base import attention_weights

PUBLISHED = 2.0**-51
"""ePrint 2026/1678, d = 8, H = 6, in a metric it does not state; ours is the relative Frobenius error of W."""


def rows(large: bool) -> Iterator[Row]:
    cells = [(16, 2, None, 1.4), (16, 4, None, 1.4), (32, 4, None, 1.2), (32, 4, 8, 1.6)]
    if large:
        cells += [(32, 8, None, 1.2), (64, 4, None, 1.1), (64, 8, None, 1.1), (64, 4, 16, 1.4), (64, 8, 8, 1.4)]
    for d, H, r, limit in cells:
        yield from generic(d, H, r, limit, 20 if large else 3)
    yield from last_digits(20 if large else 2)
    if large:
        for layer in (0, 5):
            yield from trained(layer)


def errors_of_W(found: us.models.MultiHead, target: us.models.MultiHead) -> float:
    """Worst relative Frobenius error over the heads; infinite if their number is wrong."""
    if found.heads != target.heads:
        return float("inf")
    gaps = np.array([[np.linalg.norm(a - b) / np.linalg.norm(b) for b in target.W] for a in found.W])
    pairs = linear_sum_assignment(gaps)
    return float(gaps[pairs].max())


def generic(d: int, H: int, r: int | None, limit: float, seeds: int) -> Iterator[Row]:
    unknowns, spent, errors = us.theory.multi_head_unknowns(d, H, r), [], []
    for seed in range(seeds):
        target = us.models.MultiHead.random(d, H, rank=r, seed=seed)
        recovery = us.recover(us.oracle(target), us.learners.MultiHead(), seed=seed)
        spent.append(recovery.usage.billed)
        errors.append(errors_of_W(recovery.model, target))
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
        errors.append(errors_of_W(recovery.model, target))
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
    error = errors_of_W(recovery.model, target)
    seconds = {"seconds": recovery.usage.seconds, "target": recovery.usage.target_seconds}
    yield Row(f"MiniLM layer {layer}, queries", recovery.usage.billed / unknowns, 1.15, "billed / unknowns", seconds)
    yield Row(f"MiniLM layer {layer}, error", error / 1e-9, 1.0, "relative error of W / 1e-9", {"error": error})
