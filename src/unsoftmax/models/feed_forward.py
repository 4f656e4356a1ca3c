"""A feed-forward network as it stands between two attention layers: one hidden layer, gated or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, floating

Activation = Literal["relu", "gelu", "silu"]

_CODES: dict[Activation, int] = {"relu": 1, "gelu": 2, "silu": 3}
"""Numbers by which a file names an activation."""
_ERF_IS_ONE = 7.0
"""Argument from which the error function is 1 in long double: it falls short by 4e-23 there."""


@dataclass(frozen=True, eq=False)
class FeedForward:
    """z -> constant + C (act(A z + b) [* (G z + g)]).

    A, G (m, d); b, g (m,); C (d, m); constant (d,). G and g belong to gated networks (SwiGLU: act = "silu").
    """

    A: Array
    b: Array
    C: Array
    constant: Array
    activation: Activation = "gelu"
    G: Array | None = None
    g: Array | None = None

    def __post_init__(self) -> None:
        if self.activation not in _CODES:
            raise InvalidArgument(f"`activation` must be one of {', '.join(_CODES)} (got {self.activation!r}).")
        if (self.G is None) != (self.g is None):
            raise InvalidArgument("`G` and `g` belong together: give both or none.")
        m, d = np.shape(self.A)
        wanted: dict[str, tuple[int, ...]] = {"A": (m, d), "b": (m,), "C": (d, m), "constant": (d,)}
        if self.G is not None:
            wanted |= {"G": (m, d), "g": (m,)}
        for name, shape in wanted.items():
            object.__setattr__(self, name, floating(getattr(self, name), name, len(shape)))
            if getattr(self, name).shape != shape:
                raise InvalidArgument(
                    f"`{name}` must have shape {shape} to go with the rest (got {getattr(self, name).shape})."
                )

    def __call__(self, z: Array) -> Array:
        """(..., d) -> (..., d)."""
        hidden = _ACTIVATIONS[self.activation](z @ self.A.T + self.b)
        if self.G is not None and self.g is not None:
            hidden = hidden * (z @ self.G.T + self.g)
        return np.asarray(hidden @ self.C.T + self.constant)

    def parameters(self) -> dict[str, Array]:
        """Fields as arrays, None left out; the activation as its number."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "activation"}
        arrays = {name: np.asarray(value) for name, value in found.items() if value is not None}
        return arrays | {"activation": np.asarray(_CODES[self.activation])}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> FeedForward:
        """Inverse of `parameters`."""
        values: dict[str, Any] = dict(parameters)
        code = int(values.pop("activation"))
        names = [name for name, number in _CODES.items() if number == code]
        if not names:
            raise InvalidArgument(f"`activation` must be one of 1, 2, 3 in a file (got {code}).")
        return cls(**values, activation=names[0])

    @classmethod
    def random(
        cls, dim: int, width: int, rng: np.random.Generator, *, activation: Activation = "gelu", gated: bool = False
    ) -> FeedForward:
        """Gaussian weights that keep the size of normalised tokens."""
        draw = rng.standard_normal
        gate = {"G": draw((width, dim)) / np.sqrt(dim), "g": 0.3 * draw(width)} if gated else {}
        A, b = draw((width, dim)) / np.sqrt(dim), 0.3 * draw(width)
        return cls(A, b, 0.5 * draw((dim, width)) / np.sqrt(width), 0.2 * draw(dim), activation, **gate)


def _gelu(u: Array) -> Array:
    return np.asarray(0.5 * u * (1 + _erf(u / np.sqrt(u.dtype.type(2)))).astype(u.dtype))


def _erf(x: Array) -> Array:
    """The error function in the format of x; in long double, which scipy lacks, by a series of positive terms."""
    if x.dtype != np.longdouble:
        from scipy.special import erf  # a slow import, seldom needed

        return np.asarray(erf(x))
    t = np.minimum(np.abs(x), x.dtype.type(_ERF_IS_ONE))
    term = total = t
    n = 1
    while float(np.max(term - np.finfo(x.dtype).eps * total / 4, initial=-1.0)) > 0:
        term = term * 2 * t * t / (2 * n + 1)
        total, n = total + term, n + 1
    return np.asarray(np.sign(x) * np.minimum(2 / np.sqrt(np.arccos(x.dtype.type(-1))) * np.exp(-t * t) * total, 1))


def _silu(u: Array) -> Array:
    return np.asarray(u * 0.5 * (1 + np.tanh(u / 2)))


_ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "relu": lambda u: np.maximum(u, 0),
    "gelu": _gelu,
    "silu": _silu,
}
