"""Targets that explain their answers: (value, gradient) or (value, attention) as one row of numbers per sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.models.base import Array, Model
from unsoftmax.models.explanations import attention, gradient
from unsoftmax.oracles.identity import fingerprint
from unsoftmax.spec import Kind


@dataclass(frozen=True)
class Explained:
    """fn(tokens) -> (y (batch,), explanation) as rows (batch, 1 + numbers): the value first, the rest in order.

    Copies of a row are expanded; what is said of them is added up, as a derivative along all of them is.
    """

    fn: Callable[..., Any]
    kind: Kind
    accepts_counts: bool = True
    outputs: None = None

    def identity(self) -> dict[str, Any]:
        own = getattr(self.fn, "identity", None)
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return dict(own()) if callable(own) else {"name": name, "parameters": fingerprint(self.fn)}

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        if counts is None:
            return self._rows(tokens)
        rows = []
        for sequence, copies in zip(tokens, counts, strict=True):
            y, *parts = np.split(self._rows(np.repeat(sequence, copies, axis=0)[None])[0], [1])
            split = parts[0].reshape((-1, copies.sum()) if self.kind == "attention" else (copies.sum(), -1))
            starts = np.concatenate([[0], np.cumsum(copies)[:-1]])
            added = np.add.reduceat(split, starts, axis=1 if self.kind == "attention" else 0)
            rows.append(np.concatenate([y, added.ravel()]))
        return np.stack(rows)

    def _rows(self, tokens: Array) -> Array:
        if isinstance(self.fn, Model):
            more = gradient(self.fn, tokens) if self.kind == "gradient" else attention(self.fn, tokens)
            answer: Any = (self.fn(tokens), more)
        else:
            answer = self.fn(tokens)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise OracleError(
                f'a target of kind "{self.kind}" answers with a pair (values (batch,), '
                f"{'gradients (batch, N, d)' if self.kind == 'gradient' else 'weights (batch, N) or (batch, H, N)'}) "
                f"(got {type(answer).__name__})."
            )
        y, more = np.asarray(answer[0]), np.asarray(answer[1])
        self._check(y, more, tokens)
        return np.concatenate([y.reshape(len(tokens), 1), more.reshape(len(tokens), -1)], axis=1)

    def _check(self, y: Array, more: Array, tokens: Array) -> None:
        batch, length, dim = tokens.shape
        if self.kind == "gradient":
            fits, wanted = more.shape == (batch, length, dim), f"(batch, N, d) = {(batch, length, dim)}"
        else:
            fits = more.ndim in (2, 3) and (more.shape[0], more.shape[-1]) == (batch, length)
            wanted = f"(batch, N) or (batch, H, N), N = {length}"
        if not fits or y.shape not in ((batch,), (batch, 1)):
            raise OracleError(
                f"the target answered with shapes {y.shape} and {more.shape}; (batch,) and {wanted} were required."
            )


def explained(fn: Callable[..., Any], kind: Kind, **absent: Any) -> Explained:
    """The target as one that answers in rows; what does not go with an explanation is refused by name."""
    for name, value in absent.items():
        if value is not None:
            raise InvalidArgument(f'`{name}` must be omitted with kind="{kind}" (got {value!r}): an answer is a value.')
    return Explained(fn, kind)
