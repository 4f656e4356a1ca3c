"""Hugging Face Text Embeddings Inference: `us.adapters.tei`."""

from __future__ import annotations

from typing import Any

from unsoftmax.adapters.remote.transport import transport
from unsoftmax.adapters.remote.wire import Body, Wire, embeddings
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array


def tei(
    url: str,
    *,
    vocabulary: int | None = None,
    outputs: int | None = None,
    normalize: bool = False,
    tolerance: float | None = None,
    dtype: str = "float32",
    max_length: int | None = None,
    max_batch: int = 32,
    name: str | None = None,
    token_variable: str = "TEI_API_KEY",
    **carrying: Any,
) -> Oracle:
    """An embedding model behind TEI ("http://host:8080"): prompts of ids -> vectors of `outputs` numbers.

    normalize  ask for vectors of length 1, as the server does by default; False keeps their length.
    The rest is as in `us.adapters.openai`.
    """
    carrier = transport(url, token_variable=token_variable, **carrying)

    def ask(ids: Array, _: Array | None) -> Body:
        return {"inputs": ids.tolist(), "normalize": normalize, "truncate": False}

    wire = Wire(carrier, "", "embed", ask, lambda said, _: list(said), {"normalize": normalize})
    rest: dict[str, Any] = {"tolerance": tolerance, "dtype": dtype, "max_length": max_length, "max_batch": max_batch}
    return embeddings(wire, vocabulary, outputs, name=name, **rest)
