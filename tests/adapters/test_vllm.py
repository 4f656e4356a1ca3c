"""A real vLLM server on the CPU, where a user has one: `make test-vllm`. Skipped elsewhere.

The Hugging Face folder that it serves is held against our own reading of it wherever transformers is at hand.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import unsoftmax as us
from tests.servers.hugging_face import vllm_python, vllm_server
from unsoftmax.probes import Probes
from unsoftmax.serving.llama import Llama

MODEL = Llama.random(64, 512, heads=8, kv_heads=2, seed=1)
IDS = np.random.default_rng(0).integers(3, 512, (100, 6))

SINGLE = 1e-4
"""It computes in float32; log-probabilities reach 11."""


def truth(ids: np.ndarray) -> np.ndarray:
    logits = MODEL(ids)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def asked(oracle, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([oracle(Probes(rows[i : i + 10])) for i in range(0, len(rows), 10)])


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if vllm_python() is None:
        pytest.skip("vLLM is not installed: make test-vllm says how")
    with vllm_server(MODEL, tmp_path_factory.mktemp("vllm")) as address:
        yield address


@pytest.mark.long
def test_logits_are_those_of_the_reference(url: str) -> None:
    oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=512, rate=math.inf)
    assert np.abs(asked(oracle, IDS) - truth(IDS)).max() <= SINGLE


@pytest.mark.long
def test_prompt_embeds_equal_the_same_prompts_as_ids(url: str) -> None:
    oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=512, embeds=True, dim=64, max_batch=10, rate=math.inf)
    assert np.abs(asked(oracle, MODEL.embeddings[IDS]) - truth(IDS)).max() <= SINGLE


@pytest.mark.long
def test_width_from_chosen_tokens_and_from_all(url: str) -> None:
    for how in ({}, {"shows": "chosen", "top": 100}):
        oracle = us.adapters.openai(f"{url}/v1", "model", vocabulary=512, rate=math.inf, **how)
        assert us.recover(oracle, us.learners.OutputLayer()).model.width == 64


@pytest.mark.long
def test_its_open_doors(url: str) -> None:
    by_name = {finding.name: finding for finding in us.exposure(url, rate=math.inf).open}
    assert {"models", "token ids", "logprobs", "logit bias", "prompt embeds", "version", "tokenize"} <= set(by_name)
    assert by_name["logprobs"].shown == 512


def test_where_it_is_missing_one_sentence_says_so() -> None:
    if vllm_python() is not None:
        pytest.skip("vLLM is installed")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.vllm"], capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vLLM is not installed here")
    assert "VLLM_PYTHON" in done.stderr
