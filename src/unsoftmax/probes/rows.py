"""Families of probe vectors that are stored by what generates them: d rows of dimension d without d^2 numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class Spread:
    """The d rows diagonal_l e_l + shift, a basis of R^d: diagonal (d,), shift (d,).

    With shift along v and the diagonal signed like v, every row has |a . v| >= |shift . v|: no entry of v needs a
    margin, and rows of numbers on a grid stay on it.
    """

    diagonal: Array
    shift: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.diagonal), len(self.shift)

    def __len__(self) -> int:
        return len(self.diagonal)

    def __getitem__(self, rows: slice | Array) -> Array:
        index = np.arange(len(self))[rows]
        out = np.tile(self.shift, (len(index), 1))
        out[np.arange(len(index)), index] += self.diagonal[index]
        return out

    def plus(self, start: int, stop: int, b: Array, out: Array) -> None:
        """Write rows start..stop, each plus b (d,), into out (stop - start, d) in one pass."""
        out[:] = self.shift + b
        index = np.arange(start, stop)
        out[index - start, index] += self.diagonal[index]

    def __matmul__(self, x: Array) -> Array:
        """A x for x (d,)."""
        return np.asarray(self.diagonal * x + self.shift @ x)

    def solve(self, T: Array) -> Array:
        """A^-1 T for T (d,), by Sherman and Morrison's formula."""
        x, one = T / self.diagonal, 1 / self.diagonal
        return np.asarray(x - one * ((self.shift @ x) / (1 + self.shift @ one)))


@dataclass(frozen=True, eq=False)
class Units:
    """Rows `length` e_j of dimension `dim` for j in `index` (n,)."""

    index: Array
    length: float
    dim: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.index), self.dim

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | Array | int) -> Array:
        chosen = np.atleast_1d(self.index[rows])
        out = np.zeros((len(chosen), self.dim))
        out[np.arange(len(chosen)), chosen] = self.length
        return out[0] if isinstance(rows, (int, np.integer)) else out

    def __matmul__(self, x: Array) -> Array:
        """B x for x (d,)."""
        return np.asarray(self.length * x[self.index])


def spread(v: Array, length: float) -> Spread:
    """Rows of norm at most `length` with |a . v| >= |v| length / 2 (before rounding), shift and diagonal of equal size.

    `length` is a power of two; the caller rounds `shift` to its grid.
    """
    return Spread(np.where(v < 0, -length / 2, length / 2), v * (length / 2 / np.linalg.norm(v)))
