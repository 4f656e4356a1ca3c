"""Content addresses: 128 bits of the exact bytes of a sequence (tokens, counts, shape, number format).

The hash is fast and not cryptographic: a target that could forge a collision could as well just answer wrongly, so
there is nothing to defend, and a cryptographic hash would cost more than the target itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from unsoftmax.probes.base import Array, Probes


def addresses(probes: Probes) -> Array:
    """Address of every sequence: (batch, 2) uint64. Equal sequences, and only they, have equal addresses.

    Counts that are all 1 are the same sequence as no counts. Asked `again`, a sequence has another address.
    """
    tokens = np.ascontiguousarray(probes.tokens)
    # The shape goes into the seed: the same bytes cut differently are another sequence.
    cut = (tokens.shape[1:], tokens.dtype.str, *([probes.again] if probes.again else []))
    seed = xxhash.xxh64_intdigest(repr(cut).encode())
    rows = list(tokens.reshape(len(tokens), -1))
    digest: Any = xxhash.xxh3_128_digest
    if probes.counts is None:
        joined = b"".join([digest(row, seed) for row in rows])
    else:
        counts = np.ascontiguousarray(probes.counts, dtype=np.int64)
        once = (counts == 1).all(axis=1)
        joined = b"".join(
            [
                digest(row, seed) if plain else digest(row.tobytes() + count.tobytes(), seed + 1 & 2**64 - 1)
                for row, count, plain in zip(rows, counts, once, strict=True)
            ]
        )
    return np.frombuffer(joined, dtype="<u8").reshape(len(tokens), 2)


class AddressIndex:
    """Where an address was put: 64 of its bits -> a place (int64), 16 bytes per address.

    Sorted runs, merged while the older is less than four times the younger: additions cost amortised O(log n), and
    a lookup is one binary search per run. Half an address can (once in 2^64) mislead, so a place is confirmed
    against the full address where it is stored.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Array, Array]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def add(self, keys: Array, places: Array) -> None:
        """keys (n, 2) uint64, places (n,) int64."""
        if len(keys) == 0:
            return
        self._runs.append(_sorted(keys[:, 0], places))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 4 * len(self._runs[-1][0]):
            younger, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_sorted(np.concatenate([older[0], younger[0]]), np.concatenate([older[1], younger[1]])))

    def find(self, keys: Array) -> Array:
        """Places (n,) int64 of keys (n, 2); -1 where there is none."""
        # Sorted questions walk through a run in one direction, which is kind to the cache.
        order = np.argsort(keys[:, 0])
        half = keys[order, 0]
        found = np.full(len(keys), -1, dtype=np.int64)
        for known, places in self._runs:
            at = np.minimum(np.searchsorted(known, half), len(known) - 1)
            hit = known[at] == half
            found[order[hit]] = places[at[hit]]
        return found


def _sorted(keys: Array, places: Array) -> tuple[Array, Array]:
    order = np.argsort(keys, kind="stable")
    return keys[order], places[order]
