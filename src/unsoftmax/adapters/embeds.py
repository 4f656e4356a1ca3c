"""Modules in the style of language-model libraries: vectors go in as inputs_embeds or hidden_states."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from unsoftmax.errors import InvalidArgument

_INPUTS = ("inputs_embeds", "hidden_states")
"""Names under which such modules take vectors, the whole model's before a layer's."""

_RESULTS = ("last_hidden_state", "hidden_states", "logits")
"""Fields of a result that answer, the first one present; a tuple answers with its first part."""


def call_of(module: Any) -> Callable[[Any], Any]:
    """How the module is asked: by the keyword it takes vectors under, with what else its forward requires."""
    parameters = inspect.signature(module.forward).parameters
    name = _input(module)
    if name is None:
        return lambda tokens: module(tokens)
    required = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != name
    ]
    unknown = [r for r in required if r not in ("position_ids", "cache_position", "attention_mask", "input_ids")]
    if unknown:
        raise InvalidArgument(
            f"the module's forward requires {', '.join(unknown)} beside {name}, which only the model around it makes; "
            "pass the whole model, or wrap the call with us.oracle."
        )

    def ask(tokens: Any) -> Any:
        return module(**{name: tokens}, **{r: _value(r, tokens) for r in required}, **_uncached(parameters))

    return ask


def takes_embeds(module: Any) -> bool:
    """Whether the module takes vectors under one of the usual names."""
    return _input(module) is not None


def _input(module: Any) -> str | None:
    parameters = inspect.signature(module.forward).parameters
    return next((name for name in _INPUTS if name in parameters), None)


def _value(name: str, tokens: Any) -> Any:
    """Positions 0 .. N - 1; no mask and no ids: the last token sees everything anyway."""
    if name in ("attention_mask", "input_ids"):
        return None
    places = tokens.new_ones(tokens.shape[1]).cumsum(0).long() - 1
    return places if name == "cache_position" else places[None].expand(len(tokens), -1)


def _uncached(parameters: Any) -> dict[str, Any]:
    """Answers must not depend on earlier calls."""
    return {"use_cache": False} if "use_cache" in parameters else {}


def answering(result: Any) -> Any:
    """The part of a result that answers: a tensor as it is, a named field, or the first of a tuple."""
    if hasattr(result, "dim"):
        return result
    for name in _RESULTS:
        value = result.get(name) if isinstance(result, dict) else getattr(result, name, None)
        if hasattr(value, "dim"):
            return value
    if isinstance(result, tuple) and result and hasattr(result[0], "dim"):
        return result[0]
    return result
