"""Which head feeds which: the 1/lambda term of a stack whose last token has length lambda.

At fixed direction q and lambda -> infinity, over frozen contexts C,
  lambda (y - y_inf)(C) -> sum_hg o_hg DA_h(C)[a_g(C)] + sum_h DA_h(C)[phi_h] + sum_g K_g a_g(C) + const:
a_g is what head g writes across q, DA_h the derivative of head h's answer by the last token, o_hg = 1 if g's layer lies
below h's and else 0; phi_h and K_g hold biases and the networks' values and derivatives at q. Linear in all unknowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.stack_heads import Contexts, Heads, at_work

_CUT = 1e-9
"""Relative singular values below which a direction is no information: phi_h along q, K_g outside g's range."""


@dataclass(frozen=True, eq=False)
class Order:
    """o (n, n) as solved, and the misfit of the 1/lambda term relative to its size."""

    o: Array
    residual: float

    @property
    def deviation(self) -> float:
        """How far the entries are from 0 and 1 at worst."""
        off = ~np.eye(len(self.o), dtype=bool)
        return float(np.abs(self.o - np.round(np.clip(self.o, 0, 1)))[off].max(initial=0.0))

    def layers(self) -> list[list[int]] | None:
        """Heads by layer, lowest first; None unless "below" is what it is between layers of one stack."""
        return by_layer(self.o > 0.5)


def by_layer(below: Array) -> list[list[int]] | None:
    """Heads by layer, lowest first, from below[h, g], "g lies below h"; None if that is no order of layers."""
    below = below & ~np.eye(len(below), dtype=bool)
    depth = below.sum(axis=1)
    groups = [[int(h) for h in np.flatnonzero(depth == value)] for value in sorted(set(depth.tolist()))]
    layer = np.empty(len(depth), int)
    for number, group in enumerate(groups):
        layer[group] = number
    return groups if np.array_equal(below, layer[None, :] < layer[:, None]) else None


def unknowns(n: int, D: int, d: int, rank: int, networks: bool) -> int:
    """Unknowns of the linear system: o, phi, the constants, and K_g on g's range if there are networks."""
    return n * n + n * D + d + (n * rank * d if networks else 0)


def first_order(y: list[Array], scales: Array) -> Array:
    """The 1/lambda term (B, d) from answers y[i] (B, d) at lambda = scales[i], its mean over the contexts taken off.

    Of the polynomial in 1/lambda through all scales: what the answers are at infinity is not needed.
    """
    x = 1 / np.asarray(scales)
    coefficients = np.linalg.inv(x[:, None] ** np.arange(len(x)))[1]
    term = np.tensordot(coefficients, np.stack(y), axes=1)
    return np.asarray(term - term.mean(axis=0))


def find_order(heads: Heads, T: Array, contexts: Contexts, term: Array, networks: bool) -> Order:
    """o from the 1/lambda term (B, d) at contexts that share one q; T (d, D) maps coordinates to tokens."""
    n, (B, d) = len(heads), term.shape
    q = contexts.q[0]
    across = np.eye(len(q)) - np.outer(q, q) / (q @ q)
    seen = at_work(heads, contexts.q, contexts)
    written = np.einsum("hes,bhs->bhe", heads.O, np.einsum("hsd,bhd->bhs", heads.V, seen.values))
    a = written @ T @ across
    DA = seen.by_own_of_each() @ across
    columns = [
        np.einsum("bhef,bgf->behg", DA, a, optimize=True).reshape(B, d, n * n),
        DA.transpose(0, 2, 1, 3).reshape(B, d, -1),
    ]
    if networks:
        inside = np.concatenate([_coordinates(a[:, g], heads.O.shape[2]) for g in range(n)], axis=1)
        columns.append(np.einsum("bk,ef->befk", inside, np.eye(d)).reshape(B, d, -1))
    M = np.concatenate(columns, axis=2)
    M = (M - M.mean(axis=0)).reshape(B * d, -1)
    size = np.linalg.norm(M, axis=0) + 1e-300
    solution = np.linalg.lstsq(M / size, term.ravel(), rcond=_CUT)[0]
    residual = np.linalg.norm(M / size @ solution - term.ravel()) / max(float(np.linalg.norm(term)), 1e-300)
    return Order((solution / size)[: n * n].reshape(n, n), float(residual))


def _coordinates(a: Array, rank: int) -> Array:
    """a (B, D) off its mean, in the few directions in which it moves."""
    moved = a - a.mean(axis=0)
    return np.asarray(moved @ np.linalg.svd(moved, full_matrices=False)[2][:rank].T)
