"""A real embedding server, infinity, with MiniLM: the vectors of our own forward pass, over the OpenAI wire.

`transformers serve` is not among the servers tried: 5.23 refuses `logprobs` and `top_logprobs` by name and has no
route for embeddings, so it shows nothing that a wire could read.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

import unsoftmax as us
from tests.servers import foreign
from tests.weights import HEADS, LAYERS, minilm, minilm_folder
from unsoftmax.probes import Probes

pytestmark = pytest.mark.long

SINGLE = 1e-5
"""It computes in float32 and answers with vectors of length 1."""


def words(folder: Path) -> list[str]:
    """Words that are one token each."""
    lines = (folder / "vocab.txt").read_text().splitlines()
    return [line for line in lines[2000:] if line.isascii() and line.isalpha()][:500]


def embedded(ids: np.ndarray) -> np.ndarray:
    """Embeddings (384,) of one sequence of ids as sentence-transformers gives them: BERT, mean, length 1."""
    t = minilm()

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
        return x * t[f"{name}.weight"] + t[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    n = len(ids)
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][:n]
    x = norm(x + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(LAYERS):
        part = f"encoder.layer.{i}"
        q, k, v = (
            linear(x, f"{part}.attention.self.{name}").reshape(n, HEADS, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True) @ v).swapaxes(0, 1).reshape(n, -1)
        x = norm(x + linear(mixed, f"{part}.attention.output.dense"), f"{part}.attention.output.LayerNorm")
        inner = linear(x, f"{part}.intermediate.dense")
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(x + linear(inner, f"{part}.output.dense"), f"{part}.output.LayerNorm")
    pooled = x.mean(axis=0)
    return pooled / np.linalg.norm(pooled)


def test_embeddings_are_those_of_our_forward_pass(tmp_path: Path) -> None:
    folder = minilm_folder()
    known = words(folder)
    vocabulary = {line: i for i, line in enumerate((folder / "vocab.txt").read_text().splitlines())}
    first, last = vocabulary["[CLS]"], vocabulary["[SEP]"]
    prompts = np.random.default_rng(0).integers(0, len(known), (100, 6))
    wanted = [embedded(np.array([first, *(vocabulary[known[i]] for i in row), last])) for row in prompts]
    with foreign.infinity(tmp_path, folder) as server:
        for encoding in ("float", "base64"):
            oracle = us.adapters.openai(
                server.url,
                "minilm",
                "embeddings",
                vocabulary=len(known),
                outputs=384,
                text=lambda ids: " ".join(known[i] for i in ids),
                encoding_format=encoding,
                rate=math.inf,
            )
            answers = np.concatenate([oracle(Probes(prompts[i : i + 10])) for i in range(0, 100, 10)])
            assert np.abs(answers - np.array(wanted)).max() <= SINGLE
            assert oracle.spec.tolerance <= SINGLE
