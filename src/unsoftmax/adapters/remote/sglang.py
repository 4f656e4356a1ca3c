"""SGLang's own server: `us.adapters.sglang`."""

from __future__ import annotations

from typing import Any

from unsoftmax.adapters.remote.transport import transport
from unsoftmax.adapters.remote.wire import Body, Wire, language_model, of_vectors, require, token_of
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array
from unsoftmax.spec import Shows


def sglang(
    url: str,
    *,
    vocabulary: int | None = None,
    shows: Shows = "log-probabilities",
    top: int | None = None,
    embeds: bool = False,
    dim: int | None = None,
    tolerance: float | None = None,
    dtype: str = "float32",
    max_length: int | None = None,
    max_batch: int = 16,
    name: str | None = None,
    token_variable: str = "SGLANG_API_KEY",
    **carrying: Any,
) -> Oracle:
    """A model behind SGLang's /generate ("http://host:30000"): prompts of ids, or vectors with embeds=True and dim=.

    shows="chosen" asks for the log-probabilities of chosen tokens directly (token_ids_logprob): no bias is needed.
    The rest is as in `us.adapters.openai`.
    """
    carrier = transport(url, token_variable=token_variable, **carrying)
    V = require("vocabulary", vocabulary, "it is the number of tokens whose log-probabilities are shown")
    asked = V if shows in ("logits", "log-probabilities") or embeds else top
    rest: dict[str, Any] = {
        "tolerance": tolerance,
        "dtype": dtype,
        "max_length": max_length,
        "max_batch": max_batch,
        "name": name,
    }
    key = "input_embeds" if embeds else "input_ids"

    def ask(rows: Array, chosen: Array | None) -> Body:
        body: Body = {key: rows.tolist(), "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        body |= {"return_logprob": True, "logprob_start_len": -1}
        return body | ({"top_logprobs_num": asked} if chosen is None else {"token_ids_logprob": chosen.tolist()})

    wire = Wire(carrier, "", "generate", ask, _pairs, {"shows": shows, "top": top, "embeds": embeds})
    if embeds:
        width = require("dim", dim, "it is the width of the vectors that are sent")
        return of_vectors(wire, width, V, **rest)
    return language_model(wire, V, shows, top, **rest)


def _pairs(said: Any, rows: int) -> list[Any]:
    listed = said if isinstance(said, list) else [said]
    found = []
    for item in listed:
        shown = item["meta_info"].get("output_token_ids_logprobs") or item["meta_info"]["output_top_logprobs"]
        found.append([(token_of(entry[1], None), entry[0]) for entry in shown[0]])
    return found
