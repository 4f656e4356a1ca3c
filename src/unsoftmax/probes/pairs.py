"""Two-token probes [a + b ; b]: the score gap is a'Wb, so the answer is b.v + sigma(a'Wb) (a.v)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.rows import Spread, Units


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every a with every b: A (m, d), B (n, d) -> m n probes, column by column (all a for the first b first)."""

    A: Array | Spread
    B: Array | Units

    def __len__(self) -> int:
        return len(self.A) * len(self.B)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n): shape of the measurements A W B'."""
        return len(self.A), len(self.B)

    def probes(self, phase: str) -> LazyProbes:
        """The whole design, lazy."""
        return LazyProbes(len(self), 2 * self.A.shape[1] * 8, self._build, phase)

    def at(self, rows: Array, columns: Array, shrink: Array, phase: str) -> LazyProbes:
        """Selected pairs (A[rows], B[columns]), each with both vectors multiplied by its `shrink`."""

        def build(start: int, stop: int) -> Probes:
            k = slice(start, stop)
            return paired(self.A[rows[k]] * shrink[k, None], self.B[columns[k]] * shrink[k, None])

        return LazyProbes(len(rows), 2 * self.A.shape[1] * 8, build, phase)

    def products(self, v: Array) -> tuple[Array, Array]:
        """a.v and b.v in shapes that broadcast to the measurements', (m, 1) and (1, n)."""
        return (self.A @ v)[:, None], (self.B @ v)[None, :]

    def matrix(self, answers: Array) -> Array:
        """Answers (m n,) as a matrix (m, n)."""
        return answers.reshape(len(self.B), len(self.A)).T

    def _build(self, start: int, stop: int) -> Probes:
        m, d = self.A.shape
        tokens = np.empty((stop - start, 2, d))
        filled = 0
        while start + filled < stop:
            j, row = divmod(start + filled, m)
            take = min(m - row, stop - start - filled)
            b = self.B[j]
            first = tokens[filled : filled + take, 0]
            if isinstance(self.A, Spread):
                self.A.plus(row, row + take, b, first)
            else:
                np.add(self.A[row : row + take], b, out=first)
            tokens[filled : filled + take, 1] = b
            filled += take
        return Probes(tokens)


@dataclass(frozen=True, eq=False)
class Matched:
    """a_k with b_k for matching rows of A, B (m, d): m probes, measurements (m, 1)."""

    A: Array
    B: Array

    def __len__(self) -> int:
        return len(self.A)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.A), 1

    def probes(self, phase: str) -> LazyProbes:
        """The whole design, lazy."""
        return self.at(np.arange(len(self)), np.zeros(len(self), dtype=int), np.ones(len(self)), phase)

    def at(self, rows: Array, columns: Array, shrink: Array, phase: str) -> LazyProbes:
        """Selected pairs, each with both vectors multiplied by its `shrink`; `columns` are all 0."""

        def build(start: int, stop: int) -> Probes:
            k = slice(start, stop)
            return paired(self.A[rows[k]] * shrink[k, None], self.B[rows[k]] * shrink[k, None])

        return LazyProbes(len(rows), 2 * self.A.shape[1] * 8, build, phase)

    def products(self, v: Array) -> tuple[Array, Array]:
        """a.v and b.v, (m, 1) each."""
        return (self.A @ v)[:, None], (self.B @ v)[:, None]

    def matrix(self, answers: Array) -> Array:
        return answers[:, None]


def paired(a: Array, b: Array, *, phase: str = "main") -> Probes:
    """Probes [a_k + b_k ; b_k] for matching rows of a, b (n, d)."""
    return Probes(np.stack([a + b, b], axis=1), phase=phase)
