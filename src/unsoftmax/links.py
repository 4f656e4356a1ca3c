"""Output links a service may put behind f: the inverse, and what an error of the answer does to f."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unsoftmax.spec import Link

Array = NDArray[Any]

_INVERSE: dict[Link, Callable[[Array], Array]] = {"sigmoid": logit, "exp": np.log, "log": np.exp, "tanh": np.arctanh}

READABLE: dict[Link | None, float] = {None: np.inf, "sigmoid": 1.5, "tanh": 0.75, "exp": 1.0, "log": np.inf}
"""Largest |f| worth asking for: beyond it |f| link'(f) falls, and a fixed error of the answer hides more of f."""


def inverse(link: Link, answer: Array) -> Array:
    """f from the answer; +-inf where the answer is at or past an end of the link's range (saturated).

    A service with the link "log" has no answer where f <= 0: NaN and -inf both become -inf.
    """
    y = np.asarray(answer, dtype=np.float64)
    if link == "log":
        y = np.where(np.isnan(y), -np.inf, y)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        f = _INVERSE[link](y)
    if link == "log":
        return np.where(f > 0, f, -np.inf)
    low, high = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "exp": (0.0, np.inf)}[link]
    f = np.where(y <= low, -np.inf, f)
    return np.where(y >= high, np.inf, f)


def answer_size(link: Link, f: Array) -> Array:
    """|link(f)|, of which rounding is a share; at least 1 where the link does not map small f to small answers.

    A service that has no logarithm of f was asked for that of -f.
    """
    with np.errstate(divide="ignore", over="ignore"):
        if link == "log":
            return np.maximum(np.abs(np.log(np.where(f == 0, 1.0, np.abs(f)))), 1.0)
        if link == "tanh":
            return np.abs(np.tanh(f))
        return np.maximum(np.exp(f), 1.0) if link == "exp" else np.ones_like(f)


def from_probabilities(p: Array) -> Array:
    """f from the probabilities of two classes (batch, 2), p_1 = sigmoid(f): no digit is lost near p_1 = 1."""
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Noise may take a small probability below 0, which is as saturated as 0.
        return np.asarray(np.log(np.maximum(p[:, 1], 0.0)) - np.log(np.maximum(p[:, 0], 0.0)))


def radius(link: Link | None, f: Array, error: Array | float) -> Array:
    """How far f can be from the truth if its answer, link(f), is off by `error`; inf where that saturates."""
    f, e = np.broadcast_arrays(np.asarray(f, dtype=np.float64), np.asarray(error, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if link is None:
            return np.array(e)
        if link == "log":
            return np.asarray(np.abs(f) * np.expm1(e))
        if link == "tanh":
            return 0.5 * radius("sigmoid", 2 * f, e / 2)
        small = np.exp(f) if link == "exp" else expit(-np.abs(f))
        outward = np.where(e < small, -np.log1p(-np.minimum(e / small, 1.0)), np.inf)
        return np.asarray(outward if link == "exp" else outward + np.log1p(e / (1 - small)))
