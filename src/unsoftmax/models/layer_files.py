"""An attention layer as flat arrays and back: what a file holds."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Alibi, DistanceBias, Rope
from unsoftmax.models.weighing import Weighing

if TYPE_CHECKING:
    from unsoftmax.models.attention_layer import AttentionLayer

_CODES = {"pre": 1, "post": 2, "rms": 3}
_PARTS: dict[str, tuple[str, type]] = {
    "rope": ("positions", Rope),
    "alibi": ("positions", Alibi),
    "distance": ("positions", DistanceBias),
    "features": ("features", Features),
    "weighing": ("weighing", Weighing),
}
"""Name in a file -> field of the layer and its class."""


def flattened(layer: AttentionLayer) -> dict[str, Array]:
    """Fields as arrays, None left out; the norm as its number, "part.field" for what the parts hold."""
    found: dict[str, Array] = {}
    for f in fields(layer):
        value = getattr(layer, f.name)
        kind = next((name for name, (_, cls) in _PARTS.items() if isinstance(value, cls)), None)
        if kind is not None:
            inner = {g.name: getattr(value, g.name) for g in fields(value)}
            found |= {f"{kind}.{name}": np.asarray(part) for name, part in inner.items() if part is not None}
        elif f.name == "norm":
            found |= {} if value is None else {"norm": np.asarray(_CODES[value])}
        elif value is not None:
            found[f.name] = np.asarray(value)
    return found


def parts_of(parameters: dict[str, Array]) -> dict[str, Any]:
    """Arguments of an `AttentionLayer` from what `flattened` gave."""
    values: dict[str, Any] = {name: a.item() if a.ndim == 0 else a for name, a in parameters.items()}
    parts: dict[str, dict[str, Any]] = {}
    for name in [name for name in values if "." in name]:
        kind, inner = name.split(".", 1)
        if kind not in _PARTS:
            raise InvalidArgument(f"{name!r} belongs to no part of an attention layer.")
        parts.setdefault(kind, {})[inner] = values.pop(name)
    for kind, held in parts.items():
        place, cls = _PARTS[kind]
        if "window" in held:
            held["window"] = int(held["window"])
        values[place] = cls(**held)
    code = int(values.pop("norm", 0))
    norm = next((name for name, number in _CODES.items() if number == code), None)
    if code and norm is None:
        raise InvalidArgument(f"`norm` must be 1 (pre), 2 (post) or 3 (rms) in a file (got {code}).")
    return {**values, "residual": bool(values.get("residual", False)), "norm": norm}
