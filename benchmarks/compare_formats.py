"""Number formats of served weights: listed ones, activations rounded as well, and recipes that are on no list.

A verdict "format" or "arithmetic" is sure; it is wrong where the weights were made in another way. Recipes that give
the same numbers as a listed format are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import unsoftmax as us
from benchmarks.base import Row
from unsoftmax.comparing.arithmetic import computed
from unsoftmax.comparing.formats import FORMATS, PLAIN, asymmetric, e4m3, in_blocks, small_float, symmetric
from unsoftmax.comparing.heads import heads_of
from unsoftmax.comparing.naming import dynamic

_SHAPES = ((32, 1), (16, 2), (24, 3), (48, 1))
"""Dimension and heads of the references, in turn."""
ROUNDED = (
    "bfloat16",
    "float16",
    "int8 per tensor",
    "int8 per row",
    "fp8 e4m3",
    "nf4 blocks of 64",
    "int4 blocks of 32",
)
"""Formats of weights that come with rounded activations."""


def rows(large: bool) -> Iterator[Row]:
    yield from counted(3_000 if large else 60, 20_000)


def counted(count: int, first: int) -> Iterator[Row]:
    """Half of the targets with weights alone, a third with activations, the rest unlisted."""
    kinds: tuple[tuple[Callable[[int], tuple[str, bool]], int], ...] = (
        (weights_only, count // 2),
        (activations, count // 3),
        (unlisted, count - count // 2 - count // 3),
    )
    wrong, right, tried = 0, {}, {}
    for kind, number in kinds:
        found = [kind(first + i) for i in range(number)]
        wrong += sum(said == "wrong" for said, _ in found)
        right[kind.__name__], tried[kind.__name__] = sum(said == "right" for said, _ in found), number
    figures = {"targets": tried, "right": right, "sure and wrong": wrong}
    yield Row("formats, sure and wrong", wrong / max(1.0, count / 1000), 1.0, "wrong / 3 of 3,000", figures)
    for name, part in (("weights_only", 0.0), ("activations", 0.03)):
        missed = 1 - right[name] / max(1, tried[name])
        yield Row(f"formats not named, {name.replace('_', ' ')}", missed, part, "part of the targets", figures)


def reference(seed: int) -> us.models.MultiHead:
    dim, heads = _SHAPES[seed % len(_SHAPES)]
    return us.models.MultiHead.random(dim, heads, norm=2.0, seed=seed)


def _stored(model: us.models.MultiHead, rounding: Callable[[Any], Any], *, vectors: bool) -> us.models.MultiHead:
    W = np.stack([rounding(part) for part in np.array(model.W)])
    return us.models.MultiHead(W, rounding(np.array(model.v)) if vectors else model.v)


def _said(result: us.Comparison, name: str) -> str:
    if result.verdict not in ("format", "arithmetic"):
        return "none"
    return "right" if result.format is not None and result.format.removesuffix(", dynamic") == name else "wrong"


def weights_only(seed: int) -> tuple[str, bool]:
    """What was said, and whether eight questions were enough."""
    model, name = reference(seed), list(FORMATS)[seed // len(_SHAPES) % len(FORMATS)]
    result = us.compare(us.oracle(_stored(model, FORMATS[name], vectors=name in PLAIN)), model)
    return _said(result, name), result.usage.phases.get("format") == 8


def activations(seed: int) -> tuple[str, bool]:
    """Intermediate numbers in bfloat16 or float16, or the inputs of every product in int8."""
    model, name = reference(seed), ROUNDED[seed // len(_SHAPES) % len(ROUNDED)]
    heads = heads_of(_stored(model, FORMATS[name], vectors=name in PLAIN))
    assert heads is not None
    turned = dynamic(heads) if name.startswith("int8") and seed % 2 else None
    kind = name if name in PLAIN else "bfloat16"
    target = us.oracle(turned or (lambda X: computed(heads, X, kind, seed % 3)), model.dim, dtype="float32")
    result = us.compare(target, model)
    return _said(result, name), result.usage.phases.get("format", 0) <= 64


def _stochastic(x: Any, top: int = 127) -> Any:
    s = np.abs(x).max() / top
    return np.floor(x / s + np.random.default_rng(x.size).random(x.shape)) * s


def _truncated(x: Any) -> Any:
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def _pruned(x: Any) -> Any:
    return np.where(np.abs(x) < np.quantile(np.abs(x), 0.5), 0.0, x)


UNLISTED: dict[str, Callable[[Any], Any]] = {
    "int6": lambda x: symmetric(x, 31),
    "int7 per row": lambda x: symmetric(x, 63, -1),
    "int8 of 128": lambda x: symmetric(x, 128),
    "int8 at random": _stochastic,
    "bfloat16 cut": _truncated,
    "half pruned": _pruned,
    "int4 clipped": lambda x: np.clip(np.round(x / (0.8 * np.abs(x).max() / 7)), -7, 7) * (0.8 * np.abs(x).max() / 7),
    "int4 blocks of 16": in_blocks(16, lambda x: symmetric(x, 7, 1)),
    "int3 blocks of 32": in_blocks(32, lambda x: symmetric(x, 3, 1)),
    "int4 blocks of 32, asymmetric": in_blocks(32, lambda x: asymmetric(x, 16, 1)),
    "fp6": lambda x: small_float(x, 2, -2, 28.0),
    "fp8 per row": lambda x: (
        e4m3(x / (np.abs(x).max(axis=-1, keepdims=True) / 448)) * np.abs(x).max(-1, keepdims=True) / 448
    ),
    "int16": lambda x: symmetric(x, 32767),
    "int8 of bfloat16": lambda x: symmetric(FORMATS["bfloat16"](x), 127),
}
"""Recipes that are on no list."""


def unlisted(seed: int) -> tuple[str, bool]:
    """ "right" if no format is named."""
    model, name = reference(seed), list(UNLISTED)[seed // len(_SHAPES) % len(UNLISTED)]
    result = us.compare(us.oracle(_stored(model, UNLISTED[name], vectors=False)), model)
    return ("wrong" if result.format is not None else "right"), True
