"""A recovered layer as an ONNX graph, written operator by operator.

A layer with positions, RMSNorm, sinks or caps as a causal ONNX graph, operator by operator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Alibi, DistanceBias, Rope
from unsoftmax.models.projections import projections

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


try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise InvalidArgument("to_onnx needs the package onnx; install unsoftmax[onnx].") from error

_OPSET = 17
"""The first with LayerNormalization, which every current runtime has."""


class Graph:
    """Nodes and constants in the order they are made; every method returns the name of its result."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.nodes, self.constants = dtype, [], []  # type: ignore[var-annotated]

    def constant(self, value: Array, name: str) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, value: Array, name: str) -> str:
        return self.constant(np.asarray(value).astype(self.dtype), name)

    def op(self, kind: str, *inputs: str, result: str | None = None, **attributes: Any) -> str:
        name = result or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"node_{len(self.nodes)}", **attributes))
        return name

    def layer_norm(self, x: str, layer: AttentionLayer, width: int) -> str:
        gamma = self.weight(np.ones(width) if layer.gamma is None else layer.gamma, "gamma")
        beta = self.weight(np.zeros(width) if layer.beta is None else layer.beta, "beta")
        # Spelled out: the fused operator keeps its eps and statistics in float32 whatever the tokens are.
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1], keepdims=1))
        variance = self.op("ReduceMean", self.op("Mul", centred, centred), axes=[-1], keepdims=1)
        spread = self.op("Sqrt", self.op("Add", variance, self.weight(np.array(layer.eps), "eps")))
        return self.op("Add", self.op("Mul", self.op("Div", centred, spread), gamma), beta)


def write_onnx(layer: AttentionLayer, path: str | Path) -> None:
    """Input "tokens" (batch, length, d), output "answers" (batch, length, outputs), in the layer's number format."""
    if not isinstance(path, (str, Path)):
        raise InvalidArgument(f"`path` must say where the ONNX file goes (got {type(path).__name__}).")
    graph = Graph(layer.c.dtype)
    if layer.classic:
        _classic(layer, graph)
    else:
        write_served(layer, graph)
    _save(layer, graph, path)


def _classic(layer: AttentionLayer, graph: Graph) -> None:
    """Every position looks at every token."""
    parts = projections(layer)
    assert parts is not None
    seen = graph.layer_norm("tokens", layer, layer.dim) if layer.norm == "pre" else "tokens"
    shape = graph.constant(np.array([0, 0, parts.heads, parts.width], dtype=np.int64), "by_head")

    def projected(weight: Array, name: str, bias: Array | None = None) -> str:
        rows = graph.op("MatMul", seen, graph.weight(weight.T, name))
        rows = rows if bias is None else graph.op("Add", rows, graph.weight(bias, f"{name}_bias"))
        return graph.op("Reshape", rows, shape)

    queries = graph.op("Transpose", projected(parts.query, "query", parts.query_bias), perm=[0, 2, 1, 3])
    keys = graph.op("Transpose", projected(parts.key, "key"), perm=[0, 2, 3, 1])
    values = graph.op("Transpose", projected(parts.value, "value"), perm=[0, 2, 1, 3])
    weights = graph.op("Softmax", graph.op("MatMul", queries, keys), axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    flat = graph.constant(np.array([0, 0, parts.heads * parts.width], dtype=np.int64), "all_heads")
    written = graph.op("MatMul", graph.op("Reshape", mixed, flat), graph.weight(parts.out.T, "out"))
    answers = graph.op("Add", written, graph.weight(layer.constant, "constant"))
    answers = graph.op("Add", answers, "tokens") if layer.residual else answers
    answers = graph.layer_norm(answers, layer, layer.outputs) if layer.norm == "post" else answers
    graph.op("Identity", answers, result="answers")


def _save(layer: AttentionLayer, graph: Graph, path: str | Path) -> None:
    kind = TensorProto.FLOAT if layer.c.dtype == np.float32 else TensorProto.DOUBLE
    inputs = [helper.make_tensor_value_info("tokens", kind, ["batch", "length", layer.dim])]
    outputs = [helper.make_tensor_value_info("answers", kind, ["batch", "length", layer.outputs])]
    made = helper.make_graph(graph.nodes, "attention_layer", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="unsoftmax")
    model.ir_version = 8
    onnx.checker.check_model(model)
    try:
        onnx.save(model, str(path))
    except OSError as error:
        reason = error.strerror or error
        raise InvalidArgument(
            f"{path} cannot be written ({reason}); the folder must exist and be yours to write."
        ) from error
