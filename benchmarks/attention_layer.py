"""Whole layers: numbers received over unknowns, errors and seconds, with and without LayerNorm, trained and random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import unsoftmax as us
from benchmarks.base import Row, Timed
from tests.weights import LAYERS, minilm_layer
from unsoftmax.models.layer_distance import layer_gaps


@dataclass(frozen=True)
class Cell:
    """A target's kind asked with one preset; limits of ratio and of the error of W (None: reported only)."""

    norm: str | None
    preset: str
    dtype: str
    ratio: float | None
    error: float | None


TRAINED = (
    Cell(None, "lean", "float64", 1.25, 1e-7),
    Cell(None, "robust", "float64", 3.0, 1e-11),
    Cell(None, "robust", "float32", 3.0, 2e-3),
    Cell("pre", "lean", "float64", 1.4, 5e-7),
    Cell("pre", "balanced", "float64", 1.8, 1e-8),
    Cell("post", "lean", "float64", 1.5, 2e-8),
)
TRAINED_FLOAT32 = (Cell("pre", "robust", "float32", None, None), Cell("post", "robust", "float32", None, None))
SMALL = (
    Cell(None, "lean", "float64", 1.6, 1e-7),
    Cell(None, "robust", "float64", 3.4, 1e-11),
    Cell("pre", "balanced", "float64", None, 1e-9),
    Cell("pre", "robust", "float32", None, 2e-3),
    Cell("post", "lean", "float64", None, 5e-9),
    Cell("post", "robust", "float32", None, 1e-2),
)
MIDDLE = (Cell(None, "lean", "float64", 1.25, 1e-7), Cell(None, "robust", "float64", 3.4, 1e-11))


def rows(large: bool) -> Iterator[Row]:
    for case in cases(large):
        yield from measured(*case)


def cases(large: bool) -> Iterator[tuple[str, us.models.AttentionLayer, Cell, int]]:
    """Name, target, cell and seed of every run, one by one."""
    for cell in SMALL:
        for seed in range(10 if large else 2):
            yield f"d = 64, H = 4, seed {seed}", generated(64, 4, cell, seed), cell, seed
    for cell in MIDDLE:
        yield "d = 256, H = 8", generated(256, 8, cell, 1), cell, 1
    for cell in TRAINED + TRAINED_FLOAT32 if large else TRAINED:
        for index in range(LAYERS) if large else (2,):
            for seed in range(3) if large and cell.norm is None else (0,):
                yield f"MiniLM layer {index}, seed {seed}", minilm_layer(index, cell.norm), cell, seed


def generated(d: int, H: int, cell: Cell, seed: int) -> us.models.AttentionLayer:
    return us.models.AttentionLayer.random(d, H, norm=cell.norm, residual=cell.norm is not None, seed=seed)


def measured(name: str, layer: us.models.AttentionLayer, cell: Cell, seed: int) -> Iterator[Row]:
    """The ratio, the error of W and the seconds outside the target, one row each."""
    target = Timed(layer if cell.dtype == "float64" else layer.astype(cell.dtype))
    oracle = us.oracle(target, dtype=cell.dtype)
    recovery = us.recover(oracle, us.learners.AttentionLayer(cell.preset), seed=seed)
    usage, gaps = recovery.usage, layer_gaps(recovery.model, layer)
    unknowns = us.theory.attention_layer_unknowns(layer.dim, layer.heads, layer.head_dim)
    ratio, own = usage.billed * layer.dim / unknowns, usage.seconds - target.seconds
    what = ", ".join([name, *([f"LayerNorm {cell.norm}"] if cell.norm else []), cell.preset, cell.dtype])
    line: dict[str, Any] = {
        "layer": name + (f", LayerNorm {cell.norm}" if cell.norm else ""),
        "preset": cell.preset,
        "format": cell.dtype,
        "queries": usage.billed,
        "numbers / unknowns": ratio,
        "error of W": gaps["W"],
        "error of P": gaps["P"],
        "seconds": own,
    }
    figures = {"lines": [line], "phases": dict(usage.phases), "target seconds": target.seconds, "gaps": gaps}
    yield Row(f"{what}: numbers", ratio, cell.ratio, "queries x d / unknowns, everything billed", figures)
    over = 1.0 if cell.error is None else cell.error
    limit = None if cell.error is None else 1.0
    yield Row(f"{what}: error", gaps["W"] / over, limit, f"relative error of W / {over:g}")
    yield Row(f"{what}: seconds", own, None, "seconds outside the target")
