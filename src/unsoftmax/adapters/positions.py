"""Which part of a target answers, and at which position. Learners put the query token last; targets may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.probes.base import Array

Position = int | Literal["first", "last", "mean"]


def index_of(position: Position) -> int:
    """The position as an index; a mean over positions is refused, since N query tokens would speak at once."""
    if position == "mean":
        raise InvalidArgument(
            "a mean over positions mixes the answers of all N query tokens and the probes speak to one; give the "
            "target's output before pooling and position=-1 (or 0 for a first-token model)."
        )
    if isinstance(position, bool) or not (isinstance(position, (int, np.integer)) or position in ("first", "last")):
        raise InvalidArgument(f"`position` must be an index, 'first' or 'last' (got {position!r}).")
    return {"first": 0, "last": -1}[position] if isinstance(position, str) else int(position)


def order_of(length: int, index: int) -> tuple[list[int] | None, int]:
    """Order of a sequence that puts its last token at `index`, None if it stands there, and where it then is.

    The order of the others is kept. A sequence too short for the index has the token at its nearest end.
    """
    place = min(index, length - 1) if index >= 0 else max(length + index, 0)
    last = length - 1
    return (None if place == last else [*range(place), last, *range(place, last)]), place


def arranged(tokens: Array, index: int) -> tuple[Array, int]:
    """Sequences (batch, N, d) with their last token, the query token, moved to `index`; and where it now stands."""
    order, place = order_of(tokens.shape[1], index)
    return (tokens if order is None else tokens[:, order]), place


@dataclass(frozen=True)
class Placed:
    """A callable of which one part answers, at one position: what `us.oracle(part=, position=)` asks.

    `part` is a key or an index of what fn returns. With `index`, the query token is moved there, and of answers for
    every position, (batch, N, outputs), the one there is taken; (batch,) and (batch, outputs) stay as they are. Rows
    with counts come expanded, so that a position is one of the sequence as sent.
    """

    fn: Callable[..., Any]
    part: int | str | None
    index: int | None

    @property
    def __name__(self) -> str:
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    def __call__(self, tokens: Array) -> Array:
        tokens = np.asarray(tokens)
        place = tokens.shape[1] - 1
        if self.index is not None:
            tokens, place = arranged(tokens, self.index)
        answer = self.fn(tokens, None) if getattr(self.fn, "accepts_counts", False) else self.fn(tokens)
        y = np.asarray(answer if self.part is None else selected(answer, self.part))
        if self.index is None or y.ndim != 3:
            return y
        if y.shape[1] != tokens.shape[1]:
            raise OracleError(
                f"the target answered with shape {y.shape} for sequences of {tokens.shape[1]} tokens; with position= "
                "answers are (batch, N, outputs), (batch, outputs) or (batch,)."
            )
        y = y[:, place]
        return y[:, 0] if y.shape[1] == 1 else y


def selected(result: Any, part: int | str) -> Any:
    """An entry of what a target returns, by key or index."""
    if hasattr(result, "ndim"):
        raise InvalidArgument(f"the part {part!r} is asked for, but the target returns one array; omit it.")
    try:
        return result[part]
    except (KeyError, IndexError, TypeError) as error:
        kind = type(result).__name__
        held = f"keys {', '.join(map(repr, result))}" if hasattr(result, "keys") else f"{len(result)} parts"
        raise InvalidArgument(
            f"the part {part!r} is asked for, but the target returns a {kind} with {held}."
        ) from error


def one_name(output: str | None, part: str | None) -> str | None:
    """The output that answers, named by `output` or by `part`."""
    if output is not None and part is not None and output != part:
        raise InvalidArgument(f"`output` is {output!r} and `part` is {part!r}: they name the same thing; give one.")
    return part if output is None else output
