"""llama.cpp's own server: `us.adapters.llama_cpp`."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from unsoftmax.adapters.remote.transport import Transport, Unanswered, transport
from unsoftmax.adapters.remote.wire import BIAS, Body, Wire, embeddings, language_model, require, token_of
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.spec import Shows


def llama_cpp(
    url: str,
    api: Literal["completion", "embedding"] = "completion",
    *,
    vocabulary: int | None = None,
    shows: Shows = "log-probabilities",
    top: int | None = None,
    outputs: int | None = None,
    id_slot: int = -1,
    tolerance: float | None = None,
    dtype: str = "float32",
    max_length: int | None = None,
    name: str | None = None,
    token_variable: str = "LLAMA_API_KEY",
    **carrying: Any,
) -> Oracle:
    """A model behind llama.cpp's server ("http://host:8080"): prompts of ids -> log-probabilities, or embeddings.

    Vocabulary and width are read from the server where it tells them. Log-probabilities are those before logit_bias, so
    shows="chosen" asks for probabilities after sampling, whose small ones are lost. id_slot pins a slot; -1 takes any.
    The cache of prompts is not used: what an answer is must not depend on what was asked before. The rest is as in
    `us.adapters.openai`.
    """
    if api not in ("completion", "embedding"):
        raise InvalidArgument(f"`api` must be 'completion' or 'embedding' (got {api!r}).")
    carrier = transport(url, token_variable=token_variable, **carrying)
    told = _about(carrier) if vocabulary is None or (api == "embedding" and outputs is None) else {}
    V = require("vocabulary", vocabulary or told.get("n_vocab"), "the server does not tell it")
    rest: dict[str, Any] = {
        "tolerance": tolerance,
        "dtype": dtype,
        "max_length": max_length,
        "max_batch": 1,
        "name": name,
    }
    if api == "embedding":
        width = require("outputs", outputs or told.get("n_embd"), "the server does not tell the width of an embedding")
        return embeddings(Wire(carrier, "", "embedding", _content, _vectors), V, width, **rest)
    asked = V if shows in ("logits", "log-probabilities") else top

    def ask(ids: Array, chosen: Array | None) -> Body:
        body: Body = {"prompt": ids[0].tolist(), "n_predict": 1, "n_probs": asked, "temperature": 0}
        body |= {"cache_prompt": False, "id_slot": id_slot}
        if chosen is None:
            return body
        bias = [[int(i), BIAS] for i in chosen.ravel()]
        return body | {
            "logit_bias": bias,
            "post_sampling_probs": True,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "temperature": 1.0,
        }

    wire = Wire(carrier, "", "completion", ask, _pairs, {"shows": shows, "top": top})
    return language_model(wire, V, shows, top, **rest)


def _about(carrier: Transport) -> dict[str, Any]:
    """n_vocab and n_embd, if the server tells them."""
    try:
        said = json.loads(carrier.send("GET", "v1/models").content)
        about = said["data"][0]["meta"]
        return {key: about[key] for key in ("n_vocab", "n_embd") if isinstance(about.get(key), int)}
    except Unanswered as error:
        raise error.told(carrier.url, 1, "check that it is a llama.cpp server") from None
    except (OracleError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}


def _pairs(said: Any, _: int) -> list[Any]:
    shown = said["completion_probabilities"][0]
    if "top_logprobs" in shown:
        return [[(token_of(item["id"], None), item["logprob"]) for item in shown["top_logprobs"]]]
    # Probabilities after sampling: their logarithms differ by a constant, which no learner uses.
    return [[(token_of(item["id"], None), math.log(item["prob"])) for item in shown["top_probs"] if item["prob"] > 0]]


def _content(ids: Array, _: Array | None) -> Body:
    return {"content": ids[0].tolist(), "embd_normalize": -1}


def _vectors(said: Any, _: int) -> list[Any]:
    vector = said[0]["embedding"] if isinstance(said, list) else said["embedding"]
    return [vector[0] if isinstance(vector[0], list) else vector]
