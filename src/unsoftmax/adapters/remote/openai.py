"""Completions, chat and embeddings as OpenAI and vLLM speak them: `us.adapters.openai`."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from unsoftmax.adapters.remote.transport import Unanswered, transport
from unsoftmax.adapters.remote.wire import (
    BIAS,
    Body,
    Wire,
    embeddings,
    finite,
    language_model,
    of_vectors,
    require,
    token_of,
)
from unsoftmax.errors import InvalidArgument
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.spec import Shows

Text = Callable[[list[int]], str]


def openai(
    url: str,
    model: str,
    api: Literal["completions", "chat", "embeddings"] = "completions",
    *,
    vocabulary: int | None = None,
    shows: Shows = "log-probabilities",
    top: int | None = None,
    embeds: bool = False,
    dim: int | None = None,
    outputs: int | None = None,
    text: Text | None = None,
    names: dict[str, int] | None = None,
    encoding_format: Literal["float", "base64"] = "base64",
    echo: bool = False,
    tolerance: float | None = None,
    dtype: str = "float32",
    max_length: int | None = None,
    max_batch: int = 16,
    name: str | None = None,
    token_variable: str = "OPENAI_API_KEY",
    **carrying: Any,
) -> Oracle:
    """A model behind an OpenAI-compatible server; url ends where "/completions" would follow ("http://host:8000/v1").

    api          "completions": prompts of ids (or of text, with text=) -> log-probabilities of the next token; with
                 embeds=True and dim= sequences of vectors are sent instead (vLLM --enable-prompt-embeds; needs torch).
                 "chat": one user message, text= turns ids into it. "embeddings": prompts -> `outputs` numbers each.
    vocabulary   number of token ids; required where ids are sent.
    shows, top   as in `us.logit_oracle`: all log-probabilities (the server must allow so many), the `top` likeliest, or
                 `top` chosen ones lifted by logit_bias. "logits" if the server shows raw logits.
    names        text -> id, for servers that name tokens by their text.
    echo         the prompt is sent back as well; for servers that answer to it alone.
    tolerance    by how much answers to one question may differ; None: measured, by up to ten questions of four tokens
                 that are billed to the first run. 0.0 asks nothing: for servers that are known to repeat themselves.
    The key is read from the environment variable `token_variable` at each request and written nowhere. The rest is as
    in `us.adapters.http`: rate, concurrency, timeout, retries, backoff, verify_tls.
    """
    if api not in ("completions", "chat", "embeddings"):
        raise InvalidArgument(f"`api` must be 'completions', 'chat' or 'embeddings' (got {api!r}).")
    if encoding_format not in ("float", "base64"):
        raise InvalidArgument(f"`encoding_format` must be 'float' or 'base64' (got {encoding_format!r}).")
    if api == "chat" and text is None:
        raise InvalidArgument('`text` is required with api="chat": a function from a list of ids to the message.')
    carrier = transport(url, token_variable=token_variable, **carrying)
    common: Body = {"model": model}
    rest: dict[str, Any] = {
        "tolerance": tolerance,
        "dtype": dtype,
        "max_length": max_length,
        "max_batch": max_batch,
        "name": name,
    }
    if api == "embeddings":
        wire = Wire(carrier, model, "embeddings", _input(common, encoding_format, text), _vectors)
        return embeddings(wire, vocabulary, outputs, **rest)
    V = require("vocabulary", vocabulary, "it is the number of tokens whose log-probabilities are shown")
    asked = V if shows in ("logits", "log-probabilities") else top
    if embeds:
        if api != "completions" or shows not in ("logits", "log-probabilities"):
            raise InvalidArgument('`embeds` goes with api="completions" and all log-probabilities or logits.')
        wire = Wire(
            carrier, model, "completions", _embedded(common, V, dtype), _pairs(names), {"embeds": True, "shows": shows}
        )
        width = require("dim", dim, "it is the width of the vectors that are sent")
        return of_vectors(wire, width, V, **rest)
    what = {"shows": shows, "top": top}
    if api == "chat":
        wire = Wire(carrier, model, "chat/completions", _message(common, asked, text), _pairs(names), what)
        return language_model(wire, V, shows, top, **(rest | {"max_batch": 1}))
    wire = Wire(carrier, model, "completions", _prompt(common, asked, text, echo), _pairs(names), what)
    return language_model(wire, V, shows, top, **rest)


def _prompt(common: Body, k: int | None, text: Text | None, echo: bool) -> Callable[[Array, Array | None], Body]:
    def ask(ids: Array, chosen: Array | None) -> Body:
        prompts: list[Any] = ids.tolist() if text is None else [text(row) for row in ids.tolist()]
        body = {**common, "prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": k}
        body |= {"return_tokens_as_token_ids": True} | ({"echo": True} if echo else {})
        return body if chosen is None else body | _biased(chosen)

    return ask


def _message(common: Body, k: int | None, text: Text | None) -> Callable[[Array, Array | None], Body]:
    def ask(ids: Array, chosen: Array | None) -> Body:
        assert text is not None
        message = {"role": "user", "content": text(ids[0].tolist())}
        body = {**common, "messages": [message], "max_tokens": 1, "temperature": 0, "logprobs": True}
        body |= {"top_logprobs": k, "return_tokens_as_token_ids": True}
        return body if chosen is None else body | _biased(chosen)

    return ask


def _biased(chosen: Array) -> Body:
    return {"logit_bias": {str(int(i)): BIAS for i in chosen.ravel()}}


def _embedded(common: Body, k: int, dtype: str) -> Callable[[Array, Array | None], Body]:
    def ask(X: Array, _: Array | None) -> Body:
        # Servers take the formats that models compute in: vLLM refuses float64.
        sent = [encoded(x.astype(dtype)) for x in X]
        return {
            **common,
            "prompt_embeds": sent,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": k,
            "return_tokens_as_token_ids": True,
        }

    return ask


def encoded(x: Array) -> str:
    """Vectors (N, d) as vLLM takes them: a tensor as torch saves it, in base64."""
    try:
        import torch
    except ImportError as error:
        raise InvalidArgument('prompt embeds are sent as torch tensors: pip install "unsoftmax[torch]".') from error
    buffer = io.BytesIO()
    torch.save(torch.from_numpy(np.ascontiguousarray(x)), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _pairs(names: dict[str, int] | None) -> Callable[[Any, int], list[Any]]:
    """(id, log-probability) of the tokens shown for each choice, in either of the two layouts in use."""

    def read(said: Any, rows: int) -> list[Any]:
        choices = sorted(said["choices"], key=lambda choice: choice["index"])
        if [choice["index"] for choice in choices] != list(range(rows)):
            raise Unanswered(f"the choices answer {len(choices)} prompts of {rows}", odd=True)
        return [_shown(choice["logprobs"], names) for choice in choices]

    return read


def _shown(logprobs: Any, names: dict[str, int] | None) -> list[tuple[int, float]]:
    if isinstance(logprobs.get("content"), list):
        listed = logprobs["content"][-1]["top_logprobs"]
        return [(token_of(item.get("id", item.get("token")), names), item["logprob"]) for item in listed]
    return [(token_of(word, names), value) for word, value in logprobs["top_logprobs"][-1].items()]


def _input(common: Body, format: str, text: Text | None) -> Callable[[Array, Array | None], Body]:
    def ask(ids: Array, _: Array | None) -> Body:
        given: list[Any] = ids.tolist() if text is None else [text(row) for row in ids.tolist()]
        return {**common, "input": given, "encoding_format": format}

    return ask


def _vectors(said: Any, rows: int) -> list[Any]:
    data = sorted(said["data"], key=lambda item: item["index"])
    return [_vector(item["embedding"]) for item in data]


def _vector(value: Any) -> Array:
    """Numbers, or float32 in base64."""
    if isinstance(value, str):
        return finite(np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4"))
    return finite(value)
