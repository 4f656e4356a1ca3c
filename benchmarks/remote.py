"""What an adapter costs beside a bare HTTP client that sends the same requests to the same server."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row, seconds_of
from unsoftmax.probes import Probes

AT_ONCE = 8
"""Requests in flight."""

TURNS = 5
"""Times both are measured in turn; the medians are compared."""


@contextmanager
def serving() -> Iterator[str]:
    """The practice server in a process of its own: what it computes takes no time from either client."""
    command = [sys.executable, "-m", "unsoftmax", "serve", "--language-model", "--dim", "64", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()


def rows(large: bool = False) -> list[Row]:
    import httpx

    prompts = np.random.default_rng(0).integers(3, 512, (1000 if large else 200, 6))
    with serving() as url, httpx.Client() as client:
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
