"""Which position of a sequence answers. Learners put the query token last; targets may answer elsewhere."""

from __future__ import annotations

from typing import Literal

import numpy as np

from unsoftmax.errors import InvalidArgument
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


def arranged(tokens: Array, index: int) -> tuple[Array, int]:
    """Sequences (batch, N, d) with their last token, the query token, moved to `index`; and where it now stands.

    The order of the others is kept. A sequence too short for the index has it at its nearest end.
    """
    N = tokens.shape[1]
    place = min(index, N - 1) if index >= 0 else max(N + index, 0)
    if place == N - 1:
        return tokens, place
    order = [*range(place), N - 1, *range(place, N - 1)]
    return tokens[:, order], place
