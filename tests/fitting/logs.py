"""Logs of known models for the tests: Gaussian tokens, or ids drawn by Zipf's law with sequences of many lengths."""

from __future__ import annotations

import numpy as np

import unsoftmax as us


def head(dim: int = 8, std: float = 2.0, seed: int = 0) -> us.models.SingleHead:
    """A head whose scores have about this deviation on standard normal tokens."""
    rng = np.random.default_rng([seed, 1])
    return us.models.SingleHead(rng.standard_normal((dim, dim)) * std / dim, rng.standard_normal(dim))


def heads(count: int, dim: int = 8, std: float = 2.0, seed: int = 0) -> us.models.MultiHead:
    parts = [head(dim, std, 100 * seed + h) for h in range(count)]
    return us.models.MultiHead(np.array([p.W for p in parts]), np.array([p.v for p in parts]))


def layer(count: int, dim: int = 6, std: float = 2.0, seed: int = 0) -> us.models.AttentionLayer:
    rng = np.random.default_rng([seed, 2])
    eye = np.repeat(np.eye(dim)[None], count, axis=0)
    W, P = rng.standard_normal((2, count, dim, dim)) * np.array([std / dim, 1.0])[:, None, None, None]
    return us.models.AttentionLayer(eye, W, np.zeros((count, dim)), P, eye, np.zeros(dim))


def tokens(records: int, dim: int = 8, length: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, 3]).standard_normal((records, length, dim))


def ragged_ids(records: int, vocabulary: int, longest: int = 64, seed: int = 0) -> list[np.ndarray]:
    """Zipf ids in sequences of 2 to `longest` tokens, log-uniform."""
    rng = np.random.default_rng([seed, 4])
    weights = 1 / np.arange(1, vocabulary + 1)
    lengths = np.exp(rng.uniform(np.log(2), np.log(longest + 1), records)).astype(int)
    return [rng.choice(vocabulary, size=n, p=weights / weights.sum()) for n in lengths]
