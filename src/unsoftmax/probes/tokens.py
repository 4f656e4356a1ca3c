"""Sequences of token ids that read one gap: the key, the query token last, and perhaps a helper between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array, Probes

NO_HELPER = -1
"""Stands where a sequence has no third token."""


@dataclass(frozen=True, eq=False)
class Design:
    """One sequence [helper x h, key x a, query x b] per entry; all arrays (n,), `helper` NO_HELPER where there is none.

    The last token is always a copy of `query`, so every score is taken in the query's column.
    """

    key: Array
    query: Array
    helper: Array
    key_copies: Array
    query_copies: Array
    helper_copies: Array

    def probes(self, ids: Array, rows: Array, phase: str) -> Probes:
        """The sequences at `rows`, which must all have a helper or all have none; `ids` maps tokens to ids."""
        tokens = [self.key[rows], self.query[rows]]
        counts = [self.key_copies[rows], self.query_copies[rows]]
        if len(rows) and self.helper[rows[0]] != NO_HELPER:
            tokens.insert(0, self.helper[rows])
            counts.insert(0, self.helper_copies[rows])
        repeated = np.stack(counts, axis=1)
        sequence = ids[np.stack(tokens, axis=1)]
        return Probes(sequence, None if (repeated == 1).all() else repeated, phase)


def one_token(ids: Array, *, phase: str = "values") -> Probes:
    """Every id alone."""
    return Probes(ids[:, None], phase=phase)
