"""A language model as a target: `us.logit_oracle`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.adapters.callable import CallableOracle
from unsoftmax.arguments import whole
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.identity import fingerprint
from unsoftmax.probes.base import Array
from unsoftmax.spec import Domain, OracleSpec, Shows


@dataclass(frozen=True)
class _Chosen:
    """fn(prompts, chosen) as a function of one array of ids, [chosen, prompt] (batch, k + N)."""

    fn: Callable[..., Any]
    k: int

    def __call__(self, ids: Array) -> Array:
        return np.asarray(self.fn(ids[:, self.k :], ids[:, : self.k]))

    def identity(self) -> dict[str, Any]:
        return _identity(self.fn)


@dataclass(frozen=True)
class _Top:
    """fn(prompts) -> (ids, log-probabilities), each (batch, k), as one array (batch, 2k)."""

    fn: Callable[..., Any]
    k: int

    def __call__(self, ids: Array) -> Array:
        answer = self.fn(ids)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise OracleError(
                f'a target that shows "top" answers with a pair (ids, log-probabilities), each (batch, {self.k}) (got '
                f"{type(answer).__name__})."
            )
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in answer], axis=1)

    def identity(self) -> dict[str, Any]:
        return _identity(self.fn)


def _identity(fn: Callable[..., Any]) -> dict[str, Any]:
    own = getattr(fn, "identity", None)
    name = getattr(fn, "__name__", type(fn).__name__)
    return dict(own()) if callable(own) else {"name": name, "parameters": fingerprint(fn)}


def logit_oracle(
    fn: Callable[..., Any],
    vocabulary: int,
    shows: Shows = "logits",
    top: int | None = None,
    tolerance: float = 0.0,
    dtype: str = "float64",
    max_length: int | None = None,
    forbidden: Iterable[int] = (),
    max_batch: int | None = None,
    name: str | None = None,
) -> Oracle:
    """Make an oracle of a language model: prompts of ids (batch, N) -> what it says of the next token.

    shows  "logits" or "log-probabilities": fn(prompts) -> (batch, vocabulary).
           "chosen", with top=k: fn(prompts, chosen (batch, k)) -> (batch, k), the log-probabilities of the chosen
           tokens, all shifted alike: what a service answers whose logit_bias lifts them into its top k.
           "top", with top=k: fn(prompts) -> (ids (batch, k), log-probabilities (batch, k)).
    One prompt sent is one query; `usage.tokens` counts the ids sent, chosen ones included. `max_length` limits the
    prompt. The rest is as in `us.token_oracle`.
    """
    if not callable(fn):
        raise InvalidArgument(
            f"the target must be callable (got {type(fn).__name__}); pass a function of ids (batch, N)."
        )
    if shows not in ("logits", "log-probabilities", "chosen", "top"):
        raise InvalidArgument(f"`shows` must be 'logits', 'log-probabilities', 'chosen' or 'top' (got {shows!r}).")
    whole("vocabulary", vocabulary, 2)
    if (top is None) != (shows in ("logits", "log-probabilities")):
        raise InvalidArgument(
            f"`top` is the number of tokens an answer names; it goes with shows='chosen' or 'top' (got "
            f"top={top!r} with shows={shows!r})."
        )
    outputs, more = vocabulary, 0
    if top is not None:
        whole("top", top, 2)
        if top > vocabulary:
            raise InvalidArgument(f"`top` must be at most the vocabulary, {vocabulary} (got {top}).")
        fn, outputs, more = (_Chosen(fn, top), top, top) if shows == "chosen" else (_Top(fn, top), 2 * top, 0)
    spec = OracleSpec(
        dim=1,
        kind="approximate" if tolerance > 0 else "value",
        tolerance=tolerance,
        dtype=dtype,
        domain=Domain(forbidden=tuple(forbidden)),
        outputs=outputs,
        max_batch=max_batch,
        vocabulary=vocabulary,
        name=name or getattr(fn, "__name__", type(fn).__name__),
        shows=shows,
    )
    if max_length is not None:
        whole("max_length", max_length)
        spec = replace(spec, domain=replace(spec.domain, max_length=max_length + more))
    return CallableOracle(fn, spec, named=name is not None)
