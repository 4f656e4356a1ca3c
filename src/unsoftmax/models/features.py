"""What becomes of a projected key or query before positions act: a bias, and a norm of its own (QK-norm)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, floating


@dataclass(frozen=True, eq=False)
class Features:
    """Rows k = K z + key_bias and q = Q z + query_bias, each divided by sqrt(k'D k + e) where there is a norm.

    key_bias, query_bias (H, r); key_form, query_form D (H, r, r) and key_eps, query_eps e (H,) or None: no norm.
    RMSNorm with gains g is K scaled by g and D = diag(1 / (r g^2)): gains show only in these terms.
    """

    key_bias: Array
    query_bias: Array
    key_form: Array | None = None
    query_form: Array | None = None
    key_eps: Array | None = None
    query_eps: Array | None = None

    def __post_init__(self) -> None:
        kinds = {"key_bias": 2, "query_bias": 2, "key_form": 3, "query_form": 3, "key_eps": 1, "query_eps": 1}
        for name, ndim in kinds.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, floating(getattr(self, name), name, ndim))
        norm = (self.key_form, self.query_form, self.key_eps, self.query_eps)
        if any(part is None for part in norm) and any(part is not None for part in norm):
            raise InvalidArgument("a norm of keys and queries needs both forms and both eps.")

    @classmethod
    def none(cls, heads: int, rows: int) -> Self:
        """No bias, no norm."""
        return cls(np.zeros((heads, rows)), np.zeros((heads, rows)))

    @property
    def normed(self) -> bool:
        """Whether keys and queries are normed."""
        return self.key_form is not None

    def check(self, heads: int, rows: int) -> None:
        """Refuse shapes that do not go with H heads of r rows."""
        wanted: dict[str, tuple[int, ...]] = {"key_bias": (heads, rows), "query_bias": (heads, rows)}
        if self.normed:
            wanted |= {"key_form": (heads, rows, rows), "query_form": (heads, rows, rows)}
            wanted |= {"key_eps": (heads,), "query_eps": (heads,)}
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise InvalidArgument(f"`{name}` must have shape {shape} (got {getattr(self, name).shape}).")

    def keys(self, rows: Array) -> Array:
        """(H, batch, N, r) projected tokens -> keys."""
        return _normed(rows + self.key_bias[:, None, None], self.key_form, self.key_eps)

    def queries(self, rows: Array) -> Array:
        """(H, batch, r) projected query tokens -> queries."""
        return _normed(rows + self.query_bias[:, None], self.query_form, self.query_eps)

    def take(self, heads: list[int]) -> Features:
        """The features of some heads."""
        values = (self.key_bias, self.query_bias, self.key_form, self.query_form, self.key_eps, self.query_eps)
        return Features(*(None if value is None else value[heads] for value in values))  # type: ignore[arg-type]


def _normed(rows: Array, form: Array | None, eps: Array | None) -> Array:
    if form is None or eps is None:
        return rows
    flat = rows.reshape(len(rows), -1, rows.shape[-1])
    size = ((flat @ form) * flat).sum(axis=-1).reshape(rows.shape[:-1])
    eps = eps.astype(rows.dtype).reshape(-1, *(1,) * (size.ndim - 1))
    size = np.sqrt(np.maximum(size + eps, 0))
    # An empty token stays empty, though nothing be added to its norm.
    return np.asarray(rows / np.where(size > 0, size, 1)[..., None])
