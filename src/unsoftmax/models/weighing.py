"""From scores to attention weights: a soft cap, a window, a sink per head, softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arguments import real, whole
from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, floating


@dataclass(frozen=True, eq=False)
class Weighing:
    """Scores s become c tanh(s / c) under a `softcap` c; tokens `window` and more away weigh nothing; a sink of logit
    sinks[h] (H,) takes its share of the weight of head h and writes nothing."""

    softcap: float | None = None
    sinks: Array | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None:
            real("softcap", self.softcap)
        if self.sinks is not None:
            object.__setattr__(self, "sinks", floating(self.sinks, "sinks", 1))
        if self.window is not None:
            whole("window", self.window)

    def check(self, heads: int, rows: int) -> None:
        """Refuse another number of sinks than heads."""
        if self.sinks is not None and len(self.sinks) != heads:
            raise InvalidArgument(f"`sinks` must have shape ({heads},), one per head (got {self.sinks.shape}).")

    @property
    def usual(self) -> bool:
        """Plain softmax over all tokens."""
        return self.softcap is None and self.sinks is None and self.window is None

    def weights(self, scores: Array, distances: Array) -> Array:
        """(H, batch, N) scores -> weights; with sinks they add up to less than 1."""
        if self.softcap is not None:
            cap = scores.dtype.type(self.softcap)
            scores = cap * np.tanh(scores / cap)
        if self.window is not None:
            scores = np.where(np.asarray(distances) < self.window, scores, -np.inf).astype(scores.dtype)
        top = scores.max(axis=-1, keepdims=True)
        if self.sinks is None:
            weights = np.exp(scores - top)
            return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
        sinks = self.sinks.astype(scores.dtype)[:, None, None]
        top = np.maximum(top, sinks)
        weights = np.exp(scores - top)
        return np.asarray(weights / (weights.sum(axis=-1, keepdims=True) + np.exp(sinks - top)))


PLAIN = Weighing()
"""Softmax over all tokens and nothing else, the default of a layer."""
