"""`settle`: what designs follow from is the same in every run on one ledger, whatever processor resumes it.

Last digits of a fit differ from processor to processor. Mostly this moves later tokens by as little, and the ledger
finds their answers by place (`oracles.nearness`). Where it is magnified (a difference over a small step), or decides
(bases of a subspace, the order of eigenvalues, a choice among equals, how a number between two of a grid is rounded),
the program settles what came out: the first run writes it down, and a run that is resumed goes on from there, with
tokens of the same bytes.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unsoftmax.learners.core.base import Asking, Settled
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array, Request

UNDECIDED = CORE.undecided


def settle(name: str, *values: Any) -> Asking[list[Array]]:
    """The arrays (or numbers) `values` as float64, or those that a run before settled here under this name."""
    own = [np.asarray(value, dtype=np.float64) for value in values]
    kept = _unpacked((yield Settled(name, _packed(own))))
    return own if kept is None or [a.shape for a in kept] != [a.shape for a in own] else kept


def settle_list(name: str, values: Sequence[Array]) -> Asking[list[Array]]:
    """The same for as many arrays of one meaning as there happen to be, of whatever shapes."""
    kept = _unpacked((yield Settled(name, _packed([np.asarray(value, dtype=np.float64) for value in values]))))
    return list(values) if kept is None else kept


def settle_rounded(name: str, tokens: Array, rounded: Callable[[Array], Array]) -> Asking[Array]:
    """Sequences (n, ...) that follow from a fit, rounded to a grid; where last digits decide how, as a run before did.

    What is farther than `UNDECIDED` from where rounding turns is the same everywhere, so that little is settled.
    """
    X = rounded(tokens)
    if np.array_equal(X, tokens):
        # Nothing is rounded: the ledger finds what is near.
        return X
    size = UNDECIDED * np.abs(tokens).max(axis=tuple(range(1, tokens.ndim)), keepdims=True, initial=0.0)
    undecided = np.flatnonzero(rounded(tokens + size) != rounded(tokens - size))
    kept = yield from settle_list(name, [undecided, X.flat[undecided]])
    places, values = kept if len(kept) == 2 and kept[0].shape == kept[1].shape else (undecided, X.flat[undecided])
    inside = places < X.size
    X.flat[places[inside].astype(np.int64)] = values[inside]
    return X


def begun(program: Asking[Any], answer: Array | None = None) -> Request:
    """The first request of a program, or the next after an answer; what it settles on the way is its own."""
    request = next(program) if answer is None else program.send(answer)
    while isinstance(request, Settled):
        request = program.send(request.value)
    return request


def _packed(arrays: Sequence[Array]) -> Array:
    """Number of arrays, then of each its dimensions, its shape and its entries, in one vector."""
    parts = [np.concatenate([[a.ndim], a.shape, a.ravel()]) for a in arrays]
    return np.concatenate([[float(len(arrays))], *parts])


def _unpacked(packed: Array) -> list[Array] | None:
    """The arrays of a vector; None if it holds something else, as another version may have settled it."""
    arrays, at = [], 1
    try:
        for _ in range(int(packed[0])):
            start = at + 1 + int(packed[at])
            shape = tuple(int(n) for n in packed[at + 1 : start])
            at = start + int(np.prod(shape))
            arrays.append(packed[start:at].reshape(shape))
    except (ArithmeticError, IndexError, ValueError):
        return None
    return arrays if at == len(packed) else None
