"""A one-layer attention-only language model as its weights are usually written, and what else may stand behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Weights:
    """E (V, d), positions (T, d), W_Q, W_K, W_V (H, d, k), W_O (H, k, d), U (d, V), b_Q (H, k), b_U (V,)."""

    E: np.ndarray
    positions: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray
    U: np.ndarray
    b_Q: np.ndarray
    b_U: np.ndarray

    @classmethod
    def random(
        cls,
        V: int,
        d: int,
        H: int,
        k: int,
        T: int,
        *,
        seed: int = 0,
        scale: float = 1.0,
        places: float = 0.5,
        biases: bool = False,
    ) -> Weights:
        rng = np.random.default_rng(seed)
        E, positions = rng.standard_normal((V, d)), places * rng.standard_normal((T, d))
        W_Q, W_K, W_V = rng.standard_normal((3, H, d, k)) / np.sqrt(d)
        W_O = rng.standard_normal((H, k, d)) / np.sqrt(k)
        U = rng.standard_normal((d, V)) / np.sqrt(d)
        b_Q, b_U = biases * rng.standard_normal((H, k)), biases * rng.standard_normal(V)
        return cls(E, positions, scale * W_Q, W_K, W_V, W_O, U, b_Q, b_U)

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """As `TokenLayer.of_weights` takes them."""
        return (self.E, self.positions, self.W_Q, self.W_K, self.W_V, self.W_O, self.U, self.b_Q, self.b_U)

    def hidden(self, ids: np.ndarray, layers: int = 1) -> np.ndarray:
        """The residual stream of the last token after so many layers of the same weights, causal."""
        x, N = self.E[ids] + self.positions[: ids.shape[1]], ids.shape[1]
        for _ in range(layers):
            q = np.einsum("bid,hdk->bhik", x, self.W_Q) + self.b_Q[:, None]
            scores = q @ np.einsum("bjd,hdk->bhkj", x, self.W_K) / np.sqrt(self.W_Q.shape[2])
            scores = np.where(np.tril(np.ones((N, N), bool)), scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            x = x + np.einsum("bhij,bjd,hdk,hke->bie", weights, x, self.W_V, self.W_O, optimize=True)
        return x[:, -1]

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        return self.hidden(ids) @ self.U + self.b_U

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        logits = self(ids)
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
