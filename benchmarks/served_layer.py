"""Layers of language models: numbers received over unknowns and errors on fresh sequences, random and trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from tests.learners.rotary.test_llama import worst
from tests.weights import smollm_layer

Rope = us.models.Rope


@dataclass(frozen=True)
class Cell:
    """A kind of layer asked with one preset; limits of the error on fresh sequences and of the ratio."""

    name: str
    error: float
    ratio: float
    preset: str = "balanced"
    shape: tuple[int, int, int, int] = (64, 8, 2, 8)
    base: float = 1e4
    share: float = 1.0
    rest: dict[str, Any] = field(default_factory=dict)
    alibi: bool = False

    def target(self, seed: int) -> us.models.AttentionLayer:
        """The layer of this seed."""
        d, H, G, dh = self.shape
        slopes, rope = us.models.Alibi(2.0 ** -np.arange(1.0, H + 1)), Rope.ladder(dh, self.base, self.share)
        usual = {"norm": "rms", "residual": True, "bias": False, "scale": 2.0}
        return us.models.AttentionLayer.random(
            d, H, dh, kv_groups=G, positions=slopes if self.alibi else rope, seed=seed, **(usual | self.rest)
        )


CELLS = (
    Cell("Llama block", 1e-8, 2.5),
    Cell("Llama block", 1e-7, 2.0, "lean"),
    Cell("heads of 16 dimensions", 1e-8, 2.5, shape=(64, 8, 2, 16)),
    Cell("biases", 1e-8, 2.5, rest={"bias": True}),
    Cell("base 5e5", 1e-8, 2.5, base=5e5),
    Cell("base 1e6", 1e-8, 2.5, base=1e6),
    Cell("half of the rows turn", 1e-8, 2.5, share=0.5),
    Cell("no norm", 1e-8, 2.5, rest={"norm": None}),
    Cell("one group", 1e-8, 2.5, "lean", shape=(64, 8, 1, 8)),
    Cell("four groups", 1e-8, 2.5, shape=(64, 8, 4, 8)),
    Cell("d = 128", 1e-6, 1.8, "lean", shape=(128, 8, 2, 16)),
    Cell("heads that fill the space", 1e-6, 2.2, shape=(64, 8, 8, 8)),
    Cell("sinks and window", 1e-8, 2.5, "lean", rest={"sinks": True, "window": 20}),
    Cell("QK-norm", 1e-7, 2.5, "lean", rest={"qk_norm": True}),
    Cell("soft cap 30", 1e-6, 2.5, "lean", rest={"softcap": 30.0}),
    Cell("soft cap 50", 1e-6, 2.5, "lean", rest={"softcap": 50.0}),
    Cell("ALiBi", 1e-6, 2.5, "lean", alibi=True),
    Cell("scores x 3", 1e-6, 2.6, rest={"scale": 6.0}),
)


def rows(large: bool) -> Iterator[Row]:
    for cell in CELLS:
        for seed in range(20 if large else 2):
            yield from measured(f"{cell.name}, {cell.preset}, seed {seed}", cell.target(seed), cell, seed)
    # Here H s = d: lean reads as many weights as an answer has numbers, and leaves 1e-3 and 1e-6 of layers 0 and 14.
    for index, error in ((0, 1e-5), (14, 1e-6), (29, 1e-6)) if large else ():
        cell = Cell("SmolLM2", error, 2.1, "balanced", (576, 9, 3, 64))
        yield from measured(f"SmolLM2-135M layer {index}", smollm_layer(index), cell, 0)


def measured(name: str, layer: us.models.AttentionLayer, cell: Cell, seed: int) -> Iterator[Row]:
    """Error on fresh sequences of 1 to 64 tokens, and numbers received over unknowns, verification aside."""
    meaning = "error on fresh sequences of 1 to 64 tokens, relative to what attention writes"
    try:
        recovery = us.recover(us.oracle(layer), us.learners.AttentionLayer(cell.preset), seed=seed + 1000)
    except us.errors.UnsoftmaxError:
        yield Row(f"{name}: error", float("inf"), cell.error, meaning)
        return
    asked = recovery.usage.billed - recovery.usage.phases["verify"]
    yield Row(f"{name}: error", worst(layer, recovery.model), cell.error, meaning)
    ratio = asked * layer.dim / us.theory.rotary_layer_unknowns(*cell.shape)
    yield Row(f"{name}: numbers", ratio, cell.ratio, "numbers received over unknowns, verification aside")
