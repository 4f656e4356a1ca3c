"""What an adapter costs beside a bare HTTP client that sends the same requests to the same server."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, seconds_of
from tests.servers.language_model import language_server
from unsoftmax.probes import Probes
from unsoftmax.serving.language_model import LanguageService
from unsoftmax.serving.llama import Llama

AT_ONCE = 8
"""Requests in flight."""

TURNS = 5
"""Times both are measured in turn; the medians are compared."""


def rows(large: bool = False) -> list[Row]:
    import httpx

    model = Llama.random(64, 512, heads=8, kv_heads=2, seed=1)
    prompts = np.random.default_rng(0).integers(3, 512, (1000 if large else 200, 6))
    with language_server(LanguageService(model)) as url, httpx.Client() as client:
        target = us.adapters.openai(
            f"{url}/v1", "model", vocabulary=512, max_batch=1, rate=math.inf, concurrency=AT_ONCE
        )

        def bare(ids: Any) -> Any:
            body = {"model": "model", "prompt": [ids.tolist()], "max_tokens": 1, "temperature": 0, "logprobs": 512}
            answer = client.post(f"{url}/v1/completions", json=body | {"return_tokens_as_token_ids": True})
            return answer.json()["choices"][0]["logprobs"]["top_logprobs"][0]

        def through(ids: Any) -> Any:
            return target(Probes(ids[None]))

        seconds: dict[str, list[float]] = {"adapter": [], "bare": []}
        with ThreadPoolExecutor(AT_ONCE) as workers:
            for _ in range(TURNS):
                for name, ask in (("bare", bare), ("adapter", through)):
                    spent, _ = seconds_of(lambda ask=ask: list(workers.map(ask, prompts)))
                    seconds[name].append(spent)
    medians = {name: float(np.median(found)) for name, found in seconds.items()}
    return [
        Row(
            "adapter of completions",
            medians["adapter"] / medians["bare"],
            1.2,
            f"seconds of {len(prompts)} prompts through the adapter over a bare httpx client, {AT_ONCE} at once",
            medians,
        )
    ]
