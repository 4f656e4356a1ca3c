"""Families of references, changes of their arrays, and whether what a comparison claims explains the target."""

from __future__ import annotations

from typing import Any

import numpy as np

import unsoftmax as us

FAMILIES: dict[str, Any] = {
    "plain layer": us.models.AttentionLayer.random(12, 3, scale=2.0, seed=4),
    "norm before": us.models.AttentionLayer.random(12, 2, norm="pre", residual=True, scale=2.0, seed=5),
    "norm after": us.models.AttentionLayer.random(12, 2, norm="post", residual=True, scale=2.0, seed=6),
    "rotary, grouped": us.models.AttentionLayer.random(
        16, 4, 4, kv_groups=2, positions=us.models.Rope.ladder(4), norm="rms", residual=True, bias=False, scale=2.0,
        seed=1,
    ),
    "transformer": us.models.Transformer.random(8, 12, seed=7),
    "transformer of heads": us.models.MultiHeadTransformer.random(6, 2, 8, seed=8),
    "network": us.models.ReluNetwork.random(8, 8, seed=9),
    "token head": us.models.TokenHead.random(20, 4, seed=10),
    "kernel head": us.models.KernelHead.random(10, seed=4),
    "stack": us.models.AttentionStack.random(8, layers=2, heads=2, seed=3),
}  # fmt: skip


def oracle_of(model: Any) -> Any:
    """Stacks look at all pairs of tokens: their longest sequences are kept short."""
    if hasattr(model, "vocabulary"):
        return us.token_oracle(model)
    return us.oracle(model, max_length=32 if isinstance(model, us.models.AttentionStack) else None)


def dense(stored: Any, size: float, seed: int) -> Any:
    change = np.random.default_rng(seed).standard_normal(stored.shape)
    return change * (size * (float(np.linalg.norm(stored)) or 1.0) / np.linalg.norm(change))


def entry(stored: Any, size: float, seed: int) -> Any:
    """One entry changed, by `size` of the array's norm."""
    change = np.zeros(stored.shape)
    change.flat[np.random.default_rng(seed).integers(stored.size)] = size * (float(np.linalg.norm(stored)) or 1.0)
    return change


def low_rank(stored: Any, size: float, seed: int, rank: int = 1) -> Any:
    """A change of that rank of the array as one matrix (rows of all heads together); all of a vector."""
    rng = np.random.default_rng(seed)
    rows = stored.size // stored.shape[-1]
    change = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, stored.shape[-1]))
    return (change * (size * (float(np.linalg.norm(stored)) or 1.0) / np.linalg.norm(change))).reshape(stored.shape)


def with_change(model: Any, name: str, change: Any) -> Any:
    weights = model.parameters()
    return type(model).from_parameters(weights | {name: weights[name] + change})


def explains(result: us.Comparison, model: Any, target: Any, part: float = 1e-6) -> bool:
    """Whether the reference with the changes claimed answers as the target does, but for `part` of the difference."""
    weights = model.parameters()
    changed = {name: weights[name] + change.reshape(weights[name].shape) for name, change in result.changes.items()}
    if result.delta is not None and "W" in weights:
        changed["W"] = weights["W"] + result.delta.reshape(weights["W"].shape)
    claimed = type(model).from_parameters(weights | changed)
    rng = np.random.default_rng(17)
    if hasattr(model, "vocabulary"):
        X = rng.integers(model.vocabulary, size=(64, 4))
    else:
        X = rng.standard_normal((64, 5, model.dim))
    left, before = np.linalg.norm(target(X) - claimed(X)), np.linalg.norm(target(X) - model(X))
    return bool(left <= part * before + 1e-12 * np.linalg.norm(model(X)))
