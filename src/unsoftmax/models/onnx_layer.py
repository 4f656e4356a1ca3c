"""A recovered layer as an ONNX graph, written operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array
from unsoftmax.models.projections import projections

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
        from unsoftmax.models.onnx_served import write_served

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
