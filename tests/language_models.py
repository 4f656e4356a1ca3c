"""Small language models to practise on: ids in, logits of the next token out, the unembedding at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Practice:
    """Embeddings, a mixing over positions, a nonlinearity, a final norm ("rms", "layer" or None), an unembedding."""

    width: int
    vocabulary: int
    seed: int = 0
    norm: str | None = "rms"
    cap: float | None = None
    decay: float = 0.0
    received: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        d, V = self.width, self.vocabulary
        self.E = rng.standard_normal((V, d)) * 3
        self.A = rng.standard_normal((d, d)) / np.sqrt(d)
        self.U = rng.standard_normal((V, d)) / np.sqrt(d)
        self.gamma = np.exp(0.5 * rng.standard_normal(d) - self.decay * np.arange(d) / d)

    def hidden(self, ids: np.ndarray) -> np.ndarray:
        mixed = np.einsum("n,bnd->bd", np.cos(np.arange(ids.shape[1])) + 0.5, self.E[ids])
        h = 3 * np.tanh(mixed @ self.A.T) + self.E[ids[:, -1]]
        if self.norm is None:
            return h
        h = h - h.mean(axis=1, keepdims=True) if self.norm == "layer" else h
        h = h / np.sqrt((h**2).mean(axis=1, keepdims=True) + 1e-8) * self.gamma
        return h + 0.3 * np.sin(np.arange(self.width)) if self.norm == "layer" else h

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        self.received += len(ids)
        logits = self.hidden(ids) @ self.U.T
        return logits if self.cap is None else self.cap * np.tanh(logits / self.cap)

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        logits = self(ids)
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    def chosen(self, ids: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """What a service answers whose logit_bias of 100 lifts the chosen tokens to the top."""
        logits = self(ids)
        biased = logits.copy()
        np.put_along_axis(biased, chosen, np.take_along_axis(logits, chosen, 1) + 100, 1)
        return np.take_along_axis(biased - np.logaddexp.reduce(biased, axis=1, keepdims=True), chosen, 1)

    def top(self, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        shown = self.log_probabilities(ids)
        order = np.argsort(-shown, axis=1)[:, :k]
        return order, np.take_along_axis(shown, order, 1)
