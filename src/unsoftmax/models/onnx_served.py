"""A layer with positions, RMSNorm, sinks or caps as a causal ONNX graph, operator by operator."""

from __future__ import annotations

import numpy as np

from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array
from unsoftmax.models.features import Features
from unsoftmax.models.onnx_layer import Graph
from unsoftmax.models.positions import Alibi, DistanceBias, Rope

_HIDDEN = -1e30
"""Score of tokens that are not seen: its exponential is 0 beside any other."""


def write_served(layer: AttentionLayer, graph: Graph) -> None:
    """Add the layer to the graph: every position is the query token of what came before it."""
    seen = _normed("tokens", layer, graph) if layer.norm in ("pre", "rms") else "tokens"
    features = layer.features or Features.none(layer.heads, layer.K.shape[1])
    wide = graph.op("Unsqueeze", seen, graph.constant(np.array([1]), "heads_axis"))
    keys = _rows(wide, layer.K, features.key_bias, features.key_form, features.key_eps, "key", graph)
    queries = _rows(wide, layer.Q, features.query_bias, features.query_form, features.query_eps, "query", graph)
    places = _places(graph)
    if isinstance(layer.positions, Rope):
        keys, queries = (_turned(rows, layer.positions, places, layer.K.shape[1], graph) for rows in (keys, queries))
    scores = graph.op("MatMul", queries, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))
    own = graph.op("MatMul", wide, graph.weight(layer.c[:, :, None], "c"))
    scores = graph.op("Add", scores, graph.op("Transpose", own, perm=[0, 1, 3, 2]))
    weights = _weights(scores, places, layer, graph)
    values = graph.op("MatMul", wide, graph.weight(layer.V.transpose(0, 2, 1), "value"))
    written = graph.op("MatMul", graph.op("MatMul", weights, values), graph.weight(layer.O.transpose(0, 2, 1), "out"))
    summed = graph.op("ReduceSum", written, graph.constant(np.array([1]), "sum_axis"), keepdims=0)
    answers = graph.op("Add", summed, graph.weight(layer.constant, "constant"))
    answers = graph.op("Add", answers, "tokens") if layer.residual else answers
    answers = _normed(answers, layer, graph) if layer.norm == "post" else answers
    graph.op("Identity", answers, result="answers")


def _normed(x: str, layer: AttentionLayer, graph: Graph) -> str:
    if layer.norm != "rms":
        return graph.layer_norm(x, layer, layer.dim if layer.norm == "pre" else layer.outputs)
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), axes=[-1], keepdims=1)
    root = graph.op("Sqrt", graph.op("Add", mean, graph.weight(np.array(layer.eps), "eps")))
    x = graph.op("Div", x, root)
    return x if layer.gamma is None else graph.op("Mul", x, graph.weight(layer.gamma, "gamma"))


def _rows(wide: str, weight: Array, bias: Array, form: Array | None, eps: Array | None, name: str, graph: Graph) -> str:
    """Keys or queries (batch, H, N, r)."""
    rows = graph.op("MatMul", wide, graph.weight(weight.transpose(0, 2, 1), name))
    rows = graph.op("Add", rows, graph.weight(bias[:, None], f"{name}_bias"))
    if form is None or eps is None:
        return rows
    square = graph.op("Mul", graph.op("MatMul", rows, graph.weight(form, f"{name}_form")), rows)
    size = graph.op("ReduceSum", square, graph.constant(np.array([-1]), f"{name}_axis"), keepdims=1)
    size = graph.op("Add", size, graph.weight(eps[:, None, None], f"{name}_eps"))
    return graph.op("Div", rows, graph.op("Sqrt", size))


def _places(graph: Graph) -> str:
    """0 .. N - 1, (N,) integers."""
    shape = graph.op("Shape", "tokens")
    length = graph.op("Gather", shape, graph.constant(np.array(1), "second"))
    return graph.op("Range", graph.constant(np.array(0), "zero"), length, graph.constant(np.array(1), "one"))


def _number(places: str, graph: Graph) -> str:
    return graph.op("Cast", places, to=1 if graph.dtype == np.float32 else 11)


def _turned(rows: str, rope: Rope, places: str, r: int, graph: Graph) -> str:
    """Every row times cos and its partner times sin of the angle of its own position: R as a signed permutation."""
    n, theta = 2 * len(rope.frequencies), np.zeros(r)
    theta[:n] = np.repeat(rope.frequencies, 2)
    swap = np.eye(r)
    for j in range(0, n, 2):
        swap[j : j + 2, j : j + 2] = [[0, 1], [-1, 0]]
    tag = len(graph.nodes)
    at = graph.op("Unsqueeze", _number(places, graph), graph.constant(np.array([1]), f"angle_axis_{tag}"))
    angle = graph.op("Mul", at, graph.weight(theta, f"theta_{tag}"))
    # Cosines as sines: not every runtime has both in float64.
    shifted = graph.op("Add", angle, graph.weight(np.array(np.pi / 2), f"quarter_{tag}"))
    straight = graph.op("Mul", rows, graph.op("Sin", shifted))
    crossed = graph.op("Mul", graph.op("MatMul", rows, graph.weight(swap, f"swap_{tag}")), graph.op("Sin", angle))
    return graph.op("Add", straight, crossed)


def _weights(scores: str, places: str, layer: AttentionLayer, graph: Graph) -> str:
    column = graph.op("Unsqueeze", places, graph.constant(np.array([1]), "column_axis"))
    distance = graph.op("Sub", column, places)
    if isinstance(layer.positions, Alibi):
        slopes = graph.weight(-layer.positions.slopes[:, None, None], "slopes")
        scores = graph.op("Add", scores, graph.op("Mul", slopes, _number(distance, graph)))
    if isinstance(layer.positions, DistanceBias):
        last = graph.constant(np.array(layer.positions.table.shape[1] - 1), "last")
        index = graph.op("Max", graph.op("Min", distance, last), graph.constant(np.array(0), "first"))
        scores = graph.op(
            "Add", scores, graph.op("Gather", graph.weight(layer.positions.table, "table"), index, axis=1)
        )
    if layer.softcap is not None:
        cap = graph.weight(np.array(layer.softcap), "cap")
        scores = graph.op("Mul", graph.op("Tanh", graph.op("Div", scores, cap)), cap)
    hidden = graph.op("Less", distance, graph.constant(np.array(0), "nearest"))
    if layer.window is not None:
        far = graph.op("Greater", distance, graph.constant(np.array(layer.window - 1), "window"))
        hidden = graph.op("Or", hidden, far)
    scores = graph.op("Where", hidden, graph.weight(np.array(_HIDDEN), "hidden"), scores)
    if layer.sinks is None:
        return graph.op("Softmax", scores, axis=-1)
    top = graph.op("ReduceMax", scores, axes=[-1], keepdims=1)
    sinks = graph.weight(layer.sinks[:, None, None], "sinks")
    top = graph.op("Max", top, sinks)
    exps = graph.op("Exp", graph.op("Sub", scores, top))
    total = graph.op("ReduceSum", exps, graph.constant(np.array([-1]), "last_axis"), keepdims=1)
    return graph.op("Div", exps, graph.op("Add", total, graph.op("Exp", graph.op("Sub", sinks, top))))
