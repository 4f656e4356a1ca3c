"""Layers given by their projections and biases, and targets that compute them as they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

import unsoftmax as us

Projections = dict[str, Any]


def projections(seed: int, bias: float = 30.0, dim: int = 24, scale: float = 1.5) -> Projections:
    """Float32 weights of a layer with a key bias that no answer shows and a value bias that the output's cancels."""
    rng = np.random.default_rng(seed)
    found = {name: rng.standard_normal((dim, dim)) / np.sqrt(dim) * scale for name in ("Wq", "Wk", "Wv", "Wo")}
    found |= {"bq": 0.3 * rng.standard_normal(dim), "bk": bias * rng.standard_normal(dim)}
    found |= {"bv": bias / 10 * rng.standard_normal(dim)}
    found = {name: a.astype(np.float32) for name, a in found.items()}
    found["bo"] = (-found["Wo"].astype(np.float64) @ found["bv"]).astype(np.float32)
    return found


def layer(p: Projections, heads: int = 2) -> us.models.AttentionLayer:
    given = [(p[f"W{name}"].astype(float), p[f"b{name}"].astype(float)) for name in "qkvo"]
    return us.models.AttentionLayer.from_projections(*given, heads)


def served(p: Projections, heads: int = 2, kind: str = "float32") -> us.oracles.Oracle:
    """The layer written out: every projection with its bias, in one number format."""
    dim = len(p["Wq"])
    p = {name: np.asarray(a, dtype=kind) for name, a in p.items()}

    def answer(X: np.ndarray) -> np.ndarray:
        x = X.astype(kind)
        q, k, v = (
            (x @ p[f"W{name}"].T + p[f"b{name}"]).reshape(*x.shape[:2], heads, dim // heads).transpose(0, 2, 1, 3)
            for name in "qkv"
        )
        scores = (k @ q[:, :, -1, :, None])[..., 0] / np.sqrt(dim // heads).astype(kind)
        alpha = np.exp(scores - scores.max(axis=2, keepdims=True))
        alpha /= alpha.sum(axis=2, keepdims=True)
        mixed = (alpha[:, :, None] @ v)[:, :, 0].reshape(len(x), dim)
        return np.asarray(mixed @ p["Wo"].T + p["bo"], dtype=np.float64)

    return us.oracle(answer, dim, outputs=dim, dtype=kind)
