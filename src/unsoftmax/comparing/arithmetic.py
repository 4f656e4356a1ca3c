"""A model computed as others would: in a number format, and in several orders of operations.

These are what the noise model is calibrated on, and what a target "in other arithmetic" is recognised by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from unsoftmax.comparing.heads import Heads
from unsoftmax.models.base import Array

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit of rounding of the formats in which a target may compute."""

ORDERS = (0, 1, 2)
"""Defined: 0, W q first; 1, keys first, tokens mixed before values; 2, as 0, every sum term by term."""


def to_bfloat16(x: Array) -> Array:
    """Nearest bfloat16 (ties to even), as float64; float32 numbers with the low 16 bits rounded away."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.asarray(kept.view(np.float32).astype(np.float64).reshape(np.shape(x)))


def to_float16(x: Array) -> Array:
    """Nearest float16, as float64."""
    with np.errstate(over="ignore"):
        return np.asarray(x, dtype=np.float16).astype(np.float64)


def to_float32(x: Array) -> Array:
    """Nearest float32, as float64."""
    return np.asarray(x, dtype=np.float32).astype(np.float64)


ROUND: dict[str, Callable[[Array], Array]] = {
    "float64": lambda x: np.asarray(x, dtype=np.float64),
    "float32": to_float32,
    "float16": to_float16,
    "bfloat16": to_bfloat16,
}


def computed(heads: Heads, X: Array, arithmetic: str, order: int = 0) -> Array:
    """Answers (batch,) or (batch, outputs) with every intermediate tensor rounded; sums run in float32 or wider."""
    wide: Any = np.float64 if arithmetic == "float64" else np.float32
    rounded: Callable[[Any], Any] = (
        _unrounded if arithmetic in ("float64", "float32") else lambda x: ROUND[arithmetic](x).astype(wide)
    )
    dot = _one_by_one if order == 2 else _together
    m = _cast(heads, wide)
    X = rounded(np.asarray(X).astype(wide))
    q, total = X[:, -1], np.zeros((len(X), len(m.constant)), dtype=wide)
    for h in range(m.count):
        s = rounded(_scores(m, h, X, q, order, dot, rounded))
        e = np.exp(s - s.max(axis=1, keepdims=True))
        alpha = rounded(e / e.sum(axis=1, keepdims=True, dtype=wide))
        if order == 1:
            z = dot(rounded(np.einsum("bn,bnd->bd", alpha, X))[:, None, :], m.V[h][None])
        else:
            z = dot(rounded(dot(X[:, :, None, :], m.V[h])).transpose(0, 2, 1), alpha[:, None, :])
        part = rounded(z) @ m.O[h].T if order != 2 else _one_by_one(rounded(z)[:, None, :], m.O[h][None])
        total = rounded(total + rounded(part))
    total = total + m.constant + (X[:, -1] if m.residual else 0)
    y = rounded(total).astype(np.float64)
    return np.asarray(y[:, 0] if m.scalar else y)


def _scores(
    m: Heads,
    h: int,
    X: Array,
    q: Array,
    order: int,
    dot: Callable[[Array, Array], Array],
    rounded: Callable[..., Array],
) -> Array:
    """Scores (batch, N) of one head."""
    if m.stored is not None:
        if order == 1:
            s = dot(rounded(X @ m.stored[h]), q[:, None, :])
        else:
            s = dot(X, rounded(dot(q[:, None, :], m.stored[h][None]))[:, None, :])
    else:
        assert m.K is not None
        assert m.Q is not None
        key, query = rounded(dot(X[:, :, None, :], m.K[h])), rounded(dot(q[:, None, :], m.Q[h][None]))
        s = dot(key, query[:, None, :])
    return s + X @ m.c[h] if m.c[h].any() else s


def _cast(heads: Heads, wide: Any) -> Heads:
    names = ("c", "V", "O", "constant", "stored", "K", "Q")
    cast: dict[str, Any] = {n: getattr(heads, n).astype(wide) for n in names if getattr(heads, n) is not None}
    return replace(heads, **cast)


def _unrounded(x: Array) -> Array:
    return x


def _together(a: Array, b: Array) -> Array:
    """Sum of products over the last axis; a and b broadcast."""
    return np.asarray(np.einsum("...d,...d->...", a, b))


def _one_by_one(a: Array, b: Array) -> Array:
    return np.asarray(np.cumsum(a * b, axis=-1, dtype=a.dtype)[..., -1])
