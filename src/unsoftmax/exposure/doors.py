"""The doors that servers have: what an open one costs its owner, which learner goes through it, and its switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unsoftmax.errors import OracleError

Read = Callable[[Any], int | bool]
"""From what the server said: how many numbers it showed, or whether the door is open at all."""


@dataclass(frozen=True)
class Door:
    """One request, and what an answer with status 200 that `read` understands means.

    path is below the server's root. A server may answer an open door with what is wrong with what came through it:
    `shut` are the words, its own, by which such a refusal (status 400) says that the door is closed all the same.
    """

    name: str
    path: str
    body: dict[str, Any] | None
    read: Read
    gives: str
    learner: str
    closes: str
    shut: tuple[str, ...] = ()

    def opened_by(self, error: Exception) -> bool:
        """Whether a refusal shows that the door is open."""
        status = error.http_status if isinstance(error, OracleError) else None
        return bool(self.shut) and status == 400 and not any(words in str(error) for words in self.shut)


def _shown(said: Any) -> int:
    logprobs = said["choices"][0]["logprobs"]
    if isinstance(logprobs.get("content"), list):
        return len(logprobs["content"][0]["top_logprobs"])
    return len(logprobs["top_logprobs"][0])


def _embedding(said: Any) -> int:
    return len(said["data"][0]["embedding"])


def doors(model: str, many: int) -> tuple[Door, ...]:
    """All doors of a server for a model of that name; `many` log-probabilities are asked for at once."""
    ask = {"model": model, "prompt": [[1]], "max_tokens": 1, "temperature": 0}
    return (*_completions(ask, many), *_vectors(model), *_own(many), *_beside(ask))


_WIDTH = "hidden width and output layer"


def _completions(ask: dict[str, Any], many: int) -> tuple[Door, ...]:
    """What the completions of the OpenAI interface show."""
    return (
        Door("models", "v1/models", None, lambda said: len(said["data"]), "names of the models", "-", "an API key"),
        Door(
            "token ids",
            "v1/completions",
            ask,
            lambda said: bool(said["choices"]),
            "prompts of chosen ids",
            "TokenHead",
            "text only",
        ),
        Door(
            "logprobs",
            "v1/completions",
            {**ask, "logprobs": 5},
            _shown,
            f"{_WIDTH}, where the likeliest tokens overlap",
            'OutputLayer, shows="top"',
            "no logprobs",
        ),
        Door(
            "many logprobs",
            "v1/completions",
            {**ask, "logprobs": many},
            _shown,
            f"{_WIDTH}, from d + 31 prompts",
            "OutputLayer",
            "a small --max-logprobs (vLLM)",
        ),
        Door(
            "logit bias",
            "v1/completions",
            {**ask, "logprobs": 1, "logit_bias": {"1": 100}},
            _shown,
            f"{_WIDTH}, k - 1 tokens a request",
            'OutputLayer, shows="chosen"',
            "log-probabilities before the bias",
        ),
    )


def _vectors(model: str) -> tuple[Door, ...]:
    """Real vectors in and out by the same interface."""
    return (
        Door(
            "prompt embeds",
            "v1/completions",
            {"model": model, "prompt_embeds": "AA==", "max_tokens": 1},
            lambda said: bool(said["choices"]),
            "chosen real vectors: whole attention layers",
            "AttentionLayer",
            "no --enable-prompt-embeds (vLLM)",
            shut=("not enabled", "enable-prompt-embeds"),
        ),
        Door(
            "embeddings",
            "v1/embeddings",
            {"model": model, "input": [[1]]},
            _embedding,
            "pooled hidden states",
            "compare",
            "an API key",
        ),
    )


def _own(many: int) -> tuple[Door, ...]:
    """Interfaces of single servers."""
    one = {"max_new_tokens": 1, "temperature": 0}
    return (
        Door(
            "llama.cpp completion",
            "completion",
            {"prompt": [1], "n_predict": 1, "n_probs": many},
            lambda said: len(said["completion_probabilities"][0]["top_logprobs"]),
            f"{_WIDTH}, from d + 31 prompts",
            "OutputLayer",
            "--api-key (llama.cpp)",
        ),
        Door(
            "sglang generate",
            "generate",
            {"input_ids": [[1]], "sampling_params": one, "return_logprob": True, "top_logprobs_num": 5},
            lambda said: len((said[0] if isinstance(said, list) else said)["meta_info"]["output_top_logprobs"][0]),
            f"{_WIDTH}, and vectors as input_embeds",
            "OutputLayer, AttentionLayer",
            "--api-key (SGLang)",
        ),
        Door("tei embed", "embed", {"inputs": [[1]]}, lambda said: len(said[0]), "embeddings", "compare", "an API key"),
    )


def _beside(ask: dict[str, Any]) -> tuple[Door, ...]:
    """Ways around a key, and what a server says of itself."""
    return (
        Door(
            "invocations",
            "invocations",
            ask,
            lambda said: bool(said["choices"]),
            "the same as /v1, often without the key",
            "as above",
            "a proxy in front",
        ),
        Door(
            "open inference",
            "v2",
            None,
            lambda said: bool(said["name"]),
            "any tensor the model takes",
            "all",
            "an API key",
        ),
        Door(
            "server settings",
            "props",
            None,
            lambda said: bool(said),
            "settings and chat template",
            "-",
            "no --props (llama.cpp)",
        ),
        Door(
            "interface",
            "openapi.json",
            None,
            lambda said: len(said["paths"]),
            "the list of all routes",
            "-",
            "no public schema",
        ),
    )
