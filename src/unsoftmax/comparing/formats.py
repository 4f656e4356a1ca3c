"""Number formats in which weights are stored: what each makes of the reference's weights.

Names are of the stored arrays: "per row" scales every row of the last two axes. An array of several heads may be scaled
head by head or as the one matrix that frameworks store, and vectors may be rounded with the matrices or kept: variants
of one format, of which any may explain the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.comparing.arithmetic import to_bfloat16, to_float16, to_float32
from unsoftmax.models.base import Array

Rounding = Callable[[Array], Array]

_NORMAL_QUANTILES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Defined: the sixteen levels of nf4 (Dettmers et al. 2023, QLoRA, appendix E)."""
_FP4 = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Defined: the levels of fp4 e2m1 (OCP Microscaling Formats 1.0, table 5)."""


def _scale(largest: Array, top: float) -> Array:
    return np.where(largest > 0, largest, 1.0) / top


def symmetric(x: Array, top: int, axis: int | None = None) -> Array:
    """Whole multiples of max|x| / top, at most `top` of them."""
    s = _scale(np.abs(x).max(axis=axis, keepdims=True), top)
    return np.asarray(np.clip(np.round(x / s), -top, top) * s)


def asymmetric(x: Array, levels: int, axis: int | None = None) -> Array:
    """Whole multiples of the range over levels - 1, with a whole zero point."""
    low, high = np.minimum(x.min(axis=axis, keepdims=True), 0), np.maximum(x.max(axis=axis, keepdims=True), 0)
    s = _scale(high - low, levels - 1)
    zero = np.round(-low / s)
    return np.asarray((np.clip(np.round(x / s) + zero, 0, levels - 1) - zero) * s)


def small_float(x: Array, mantissa: int, least_exponent: int, top: float) -> Array:
    """Nearest number of a short float with that many bits of mantissa (ties to even), saturated at `top`."""
    exponent = np.floor(np.log2(np.maximum(np.abs(x), 2.0**least_exponent)))
    step = 2.0 ** (exponent - mantissa)
    return np.asarray(np.clip(np.round(x / step) * step, -top, top))


def e4m3(x: Array) -> Array:
    """fp8 with 4 bits of exponent, 3 of mantissa."""
    return small_float(x, 3, -6, 448.0)


def e5m2(x: Array) -> Array:
    """fp8 with 5 bits of exponent, 2 of mantissa."""
    return small_float(x, 2, -14, 57344.0)


def scaled(rounding: Rounding, top: float) -> Rounding:
    """A short float applied to x / s with max|x| = s top."""

    def apply(x: Array) -> Array:
        s = _scale(np.abs(x).max(), top)
        return np.asarray(rounding(x / s) * s)

    return apply


def in_blocks(size: int, rounding: Rounding) -> Rounding:
    """A rounding of rows applied to blocks of consecutive entries."""

    def apply(x: Array) -> Array:
        flat = x.reshape(-1)
        padded = np.concatenate([flat, np.zeros(-len(flat) % size)]).reshape(-1, size)
        return np.asarray(rounding(padded).reshape(-1)[: len(flat)].reshape(x.shape))

    return apply


def levels(table: tuple[float, ...]) -> Rounding:
    """Rows (blocks, size) rounded to a table of levels times max|row|."""
    values = np.array(table)
    middle = (values[1:] + values[:-1]) / 2

    def apply(x: Array) -> Array:
        s = _scale(np.abs(x).max(axis=1, keepdims=True), float(values.max()))
        return np.asarray(values[np.searchsorted(middle, x / s)] * s)

    return apply


PLAIN: dict[str, Rounding] = {"float32": to_float32, "bfloat16": to_bfloat16, "float16": to_float16}
"""Formats without a scale: vectors are in them too."""

INT8: dict[str, Rounding] = {
    "int8 per tensor": lambda x: symmetric(x, 127),
    "int8 per tensor, asymmetric": lambda x: asymmetric(x, 256),
    "int8 per row": lambda x: symmetric(x, 127, -1),
    "int8 per row, asymmetric": lambda x: asymmetric(x, 256, -1),
    "int8 per column": lambda x: symmetric(x, 127, -2),
}
"""Whole numbers of 8 bits and a scale: activations may be in them too, each token with a scale of its own."""

SHORT: dict[str, Rounding] = {
    "fp8 e4m3": e4m3,
    "fp8 e4m3 scaled": scaled(e4m3, 448.0),
    "fp8 e5m2": e5m2,
    "fp8 e5m2 scaled": scaled(e5m2, 57344.0),
    "int4 blocks of 32": in_blocks(32, lambda x: symmetric(x, 7, 1)),
    "int4 blocks of 64": in_blocks(64, lambda x: symmetric(x, 7, 1)),
    "int4 blocks of 128": in_blocks(128, lambda x: symmetric(x, 7, 1)),
    "nf4 blocks of 64": in_blocks(64, levels(_NORMAL_QUANTILES)),
    "fp4 blocks of 32": in_blocks(32, levels(_FP4)),
}
"""Formats of weights alone, of 8 bits and less: products are computed in bfloat16."""

FORMATS: dict[str, Rounding] = {**PLAIN, **INT8, **SHORT}
"""Formats by name; each maps a matrix to the numbers that are really used."""


@dataclass(frozen=True)
class Variant:
    """A format applied head by head or to whole stored matrices, to vectors or not.

    `follow`: key offsets c_h = K_h'b_h of a layer are made of the rounded keys, as where a query bias is stored.
    """

    name: str
    by_head: bool
    vectors: bool
    follow: bool = False

    def weights(self, weights: dict[str, Array]) -> dict[str, Array]:
        """All weights in this format."""
        rounding = FORMATS[self.name]
        found = {name: self._one(name, np.asarray(a, dtype=np.float64), rounding) for name, a in weights.items()}
        if self.follow:
            bias = [np.linalg.lstsq(K.T, c, rcond=None)[0] for K, c in zip(weights["K"], weights["c"], strict=True)]
            kept = np.array(bias)
            found["c"] = np.einsum("hrd,hr->hd", found["K"], rounding(kept) if self.vectors else kept)
        return found

    def _one(self, name: str, a: Array, rounding: Rounding) -> Array:
        if a.ndim < 2 or name in ("c", "b"):
            return rounding(a.reshape(1, -1)).reshape(a.shape) if self.vectors else a
        if a.ndim == 2:
            # Rows of a two-axis array named v are one vector per head.
            return a if name == "v" and not self.vectors else rounding(a)
        if self.by_head:
            return np.stack([rounding(part) for part in a])
        if name == "O":
            whole = a.transpose(1, 0, 2)
            return rounding(whole.reshape(len(whole), -1)).reshape(whole.shape).transpose(1, 0, 2)
        return rounding(a.reshape(-1, a.shape[-1])).reshape(a.shape)


def variants(weights: dict[str, Array], names: Iterable[str] | None = None) -> Iterator[Variant]:
    """Every variant of the formats named that makes a difference for these weights; None: of all, the usual ones."""
    stacked = any(a.ndim > 2 and len(a) > 1 for a in weights.values())
    vectors = any(a.ndim < 2 or name in ("c", "b", "v") for name, a in weights.items())
    offsets = "K" in weights and "c" in weights and weights["K"].ndim == 3 and bool(np.any(weights["c"]))
    for name in FORMATS if names is None else names:
        plain = name in PLAIN
        for by_head in (False, True) if stacked and not plain else (False,):
            if names is None:
                yield Variant(name, by_head, plain or not vectors, offsets)
                continue
            for with_vectors in (True, False) if vectors else (True,):
                for follow in (True, False) if offsets else (False,):
                    yield Variant(name, by_head, with_vectors, follow)
