"""The doors that servers have: what an open one costs its owner, which learner goes through it, and its switch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Read = Callable[[Any], int | bool]
"""From what the server said: how many numbers it showed, or whether the door is open at all."""


@dataclass(frozen=True)
class Door:
    """One request, and what an answer with status 200 that `read` understands means.

    path is below the server's root. A server may answer an open door with what is wrong with what came through it: a
    request that is answered without the field `adds` and refused with it was read, unless the refusal has one of the
    words `shut`, by which servers say that they do not take the field at all.
    changes the field of the body without which the answer must be another one: its likeliest token, or by `_CHANGED`.
    count   the field of the body that says how many numbers to show: how many it will show at most is then looked for.
    tells   what is worth repeating of an answer, such as a version.
    text    the answer is plain text, not JSON.
    """

    name: str
    path: str
    body: dict[str, Any] | None
    read: Read
    gives: str
    learner: str
    closes: str
    adds: str = ""
    shut: tuple[str, ...] = ()
    changes: str = ""
    count: str = ""
    tells: Callable[[Any], str] | None = None
    text: bool = False

    def asking(self, many: int) -> Door:
        """The same door, asked for so many numbers."""
        return replace(self, body={**(self.body or {}), self.count: many})

    @property
    def without(self) -> dict[str, Any]:
        """The body without the field that it adds."""
        return {name: value for name, value in (self.body or {}).items() if name not in (self.adds, self.changes)}

    def read_and_refused(self, status: int | None, words: str) -> bool:
        """Whether a refusal shows that what the field holds was looked at."""
        said = words.lower()
        return bool(self.adds) and status in (400, 422, 500) and not any(word in said for word in self.shut)


_CHANGED = 0.1
"""Least difference of the largest number with a field and without: batches move log-probabilities by a thousandth."""


def changed(said: Any, plain: Any) -> bool:
    """Whether another token is the likeliest than in a plain answer, or its number another one."""
    (word, high), (before, low) = _likeliest(said), _likeliest(plain)
    return word != before or abs(high - low) > _CHANGED


def _likeliest(said: Any) -> tuple[str, float]:
    shown = said["choices"][0]["logprobs"]["top_logprobs"][0]
    word = max(shown, key=lambda name: float(shown[name]))
    return word, float(shown[word])


def _values(said: Any) -> list[float]:
    logprobs = said["choices"][0]["logprobs"]
    if isinstance(logprobs.get("content"), list):
        return [float(item["logprob"]) for item in logprobs["content"][0]["top_logprobs"]]
    return [float(value) for value in logprobs["top_logprobs"][0].values()]


def _shown(said: Any) -> int:
    return len(_values(said))


_CERTAIN = -0.01
"""Log-probability above which a token is as good as certain: one that a bias of 100 lifts is so to 1e-40."""


def _lifted(said: Any) -> bool:
    """Whether a bias acts on what is shown: the likeliest token is then certain."""
    return max(_values(said)) > _CERTAIN


_MORE_THAN_ALL = 1.01
"""Sum of exponentials that probabilities, rounded to two decimals of their logarithm, do not reach."""


def _raw(said: Any) -> bool:
    """Whether numbers cannot be log-probabilities: their exponentials add up to more than 1."""
    return sum(math.exp(min(value, 100.0)) for value in _values(said)) > _MORE_THAN_ALL


def _embedding(said: Any) -> int:
    return len(said["data"][0]["embedding"])


def doors(model: str) -> tuple[Door, ...]:
    """All doors of a server for a model of that name."""
    ask = {"model": model, "prompt": [[1]], "max_tokens": 1, "temperature": 0}
    return (*_completions(ask), *_vectors(model), *_own(), *_beside(ask), *_told())


FEW = 5
"""Numbers asked for at first: a service that shows any shows five."""


_WIDTH = "hidden width and output layer"


def _completions(ask: dict[str, Any]) -> tuple[Door, ...]:
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
            {**ask, "logprobs": FEW},
            _shown,
            f"{_WIDTH}: from d + 31 prompts where all are shown, else where the likeliest tokens overlap",
            "OutputLayer",
            "a small --max-logprobs (vLLM), or no logprobs",
            count="logprobs",
        ),
        Door(
            "raw logits",
            "v1/completions",
            {**ask, "logprobs": FEW},
            _raw,
            "logits before the softmax: their common part, and a softcap",
            'OutputLayer, shows="logits"',
            "--logprobs-mode raw_logprobs (vLLM)",
        ),
        Door(
            "logit bias",
            "v1/completions",
            {**ask, "logprobs": 1, "logit_bias": {"1": 100}},
            _lifted,
            f"{_WIDTH}, k - 1 tokens a request",
            'OutputLayer, shows="chosen"',
            "log-probabilities before the bias (vLLM: --logprobs-mode raw_logprobs)",
            changes="logit_bias",
        ),
    )


def _vectors(model: str) -> tuple[Door, ...]:
    """Real vectors in and out by the same interface."""
    ask = {"model": model, "prompt": [[1]], "max_tokens": 1, "temperature": 0}
    return (
        Door(
            "prompt embeds",
            "v1/completions",
            {**ask, "prompt_embeds": "AA=="},
            # No tensor: an answer means that the field was passed over.
            lambda _: False,
            "chosen real vectors: whole attention layers",
            "AttentionLayer",
            "no --enable-prompt-embeds (vLLM)",
            adds="prompt_embeds",
            shut=("not enabled", "enable-prompt-embeds", "unexpected", "unrecognized", "unknown", "extra", "permitted"),
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


def _own() -> tuple[Door, ...]:
    """Interfaces of single servers."""
    one = {"max_new_tokens": 1, "temperature": 0}
    return (
        Door(
            "llama.cpp completion",
            "completion",
            {"prompt": [1], "n_predict": 1, "n_probs": FEW},
            lambda said: len(said["completion_probabilities"][0]["top_logprobs"]),
            f"{_WIDTH}, from d + 31 prompts",
            "OutputLayer",
            "--api-key (llama.cpp)",
            count="n_probs",
        ),
        Door(
            "sglang generate",
            "generate",
            {"input_ids": [[1]], "sampling_params": one, "return_logprob": True, "top_logprobs_num": FEW},
            lambda said: len((said[0] if isinstance(said, list) else said)["meta_info"]["output_top_logprobs"][0]),
            f"{_WIDTH}, and vectors as input_embeds",
            "OutputLayer, AttentionLayer",
            "--api-key (SGLang)",
            count="top_logprobs_num",
        ),
        Door("tei embed", "embed", {"inputs": [[1]]}, lambda said: len(said[0]), "embeddings", "compare", "an API key"),
    )


def _beside(ask: dict[str, Any]) -> tuple[Door, ...]:
    """Ways around a key: routes that servers leave open beside /v1. None of them changes anything."""
    one = {"model": ask["model"], "input": [1]}
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
            "pooling", "pooling", one, lambda said: bool(said["data"]), "hidden states", "compare", "a proxy in front"
        ),
        Door(
            "tokenize",
            "tokenize",
            {"model": ask["model"], "prompt": "a", "content": "a"},
            lambda said: len(said["tokens"]),
            "text to ids: prompts of chosen ids become easy",
            "-",
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
            tells=lambda said: f"{said['name']} {said.get('version', '')}",
        ),
    )


def _told() -> tuple[Door, ...]:
    """What a server says of itself, and of others who use it."""

    def version(said: Any) -> str:
        return str(said["version"])

    def told(name: str, path: str, gives: str, closes: str, **more: Any) -> Door:
        return Door(name, path, None, more.pop("read", bool), gives, "-", closes, **more)

    known = "its version: which known holes it has"
    return (
        told("version", "version", known, "a proxy in front (vLLM)", read=lambda s: bool(s["version"]), tells=version),
        told("info", "info", "model, limits and version", "an API key (TEI)", tells=version),
        told("server info", "get_server_info", "all settings", "--api-key (SGLang)", tells=version),
        told(
            "server settings",
            "props",
            "settings and chat template",
            "--api-key (llama.cpp)",
            tells=lambda said: str(said.get("build_info", "")),
        ),
        told("slots", "slots", "what others are asking right now", "--no-slots (llama.cpp)"),
        told("metrics", "metrics", "how much the server is used", "a proxy in front", text=True),
        told(
            "interface",
            "openapi.json",
            "the list of all routes",
            "--disable-fastapi-docs (vLLM)",
            read=lambda said: len(said["paths"]),
        ),
    )
