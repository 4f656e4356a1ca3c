"""A language model that shows less of the next token than its own answers: log-probabilities, chosen or top tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec, Shows


@dataclass(frozen=True)
class Shown:
    """What a service shows of a model that answers with all logits or log-probabilities.

    "log-probabilities"; "chosen" with `top`: those of the first `top` ids of the sequence, after the prompt that
    follows them; "top": the ids of the `top` likeliest tokens, then their log-probabilities. `decimals` rounds them.
    """

    inner: Oracle
    shows: Shows = "log-probabilities"
    top: int = 0
    decimals: int | None = None

    def __post_init__(self) -> None:
        if self.inner.spec.shows not in ("logits", "log-probabilities"):
            raise InvalidArgument("only a model that answers with all logits or log-probabilities can show less.")
        if self.shows in ("chosen", "top") and not 2 <= self.top <= (self.inner.spec.vocabulary or 0):
            raise InvalidArgument(f"`top` must be between 2 and the vocabulary (got {self.top}).")

    @property
    def spec(self) -> OracleSpec:
        inner = self.inner.spec
        spec = replace(inner, shows=self.shows)
        if self.shows in ("chosen", "top"):
            spec = replace(spec, outputs=self.top if self.shows == "chosen" else 2 * self.top)
        if self.shows == "chosen" and inner.domain.max_length is not None:
            spec = replace(spec, domain=replace(inner.domain, max_length=inner.domain.max_length + self.top))
        if self.decimals is not None:
            spec = replace(spec, kind="approximate", tolerance=inner.tolerance + 0.5 * 10.0**-self.decimals)
        return spec

    def __call__(self, probes: Probes) -> Array:
        before = self.top if self.shows == "chosen" else 0
        logits = self.inner(Probes(probes.tokens[:, before:], probes.counts, probes.phase, probes.offset))
        shown = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        shown = shown if self.decimals is None else np.round(shown, self.decimals)
        if self.shows == "chosen":
            return np.take_along_axis(shown, probes.tokens[:, :before], axis=1)
        if self.shows == "top":
            order = np.argsort(-shown, axis=1, kind="stable")[:, : self.top]
            return np.concatenate([order.astype(np.float64), np.take_along_axis(shown, order, axis=1)], axis=1)
        return np.asarray(shown)
