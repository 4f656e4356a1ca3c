"""Which head feeds which: the 1/lambda term of a stack whose last token has length lambda.

At fixed direction q and lambda -> infinity, over frozen contexts C,
  lambda (y - y_inf)(C) -> sum_hg o_hg DA_h(C)[a_g(C)] + sum_h DA_h(C)[phi_h] + sum_g K_g a_g(C) + const:
a_g is what head g writes across q, DA_h the derivative of head h's answer by the last token, o_hg = 1 if g's layer lies
below h's and else 0; phi_h and K_g hold biases and the networks' values and derivatives at q. Linear in all unknowns.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from unsoftmax.probes.base import Array
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.stack_heads import Contexts, Heads, at_work
from unsoftmax.solvers.stack_newton import PART

_FEW = 1500
"""Shared unknowns up to which all outputs are looked at: 31 heads without networks; then a solve takes seconds."""

_OUTPUTS = 8
"""Combinations of the outputs that are looked at of larger systems: 48 heads at d = 64 take half a gigabyte."""

_DAMPING = 1e-12
"""Added to normal equations with a unit diagonal: directions without information stay at zero."""

_HEARD = 1e-3
"""Share of the 1/lambda term below which what is left for o to explain is rounding: one layer leaves nothing."""

_UNLIKE = 0.25
"""Distance of entries from those of L equal layers, over the distance to those of L + 1, that is still theirs."""


@dataclass(frozen=True, eq=False)
class Order:
    """o (n, n) as solved, and the misfit of the 1/lambda term relative to its size."""

    o: Array
    residual: float

    @property
    def repeated(self) -> int:
        """How often one layer is applied: L times the same heads look like one layer that writes L times as much.

        Of the L^2 pairs of a head's copy and another's, L (L - 1) / 2 are "g lies below h": every entry, the diagonal
        too, is (L - 1) / 2L. One if the entries are not all the same, or nearer to no layer feeding another.
        """
        mean = float(np.mean(self.o))
        L = max(1, round(1 / (1 - 2 * mean))) if mean < 0.5 - 1e-3 else 1
        return L if L > 1 and self._off_repeated(L) <= _UNLIKE else 1

    def _off_repeated(self, L: int) -> float:
        """Worst distance from the entries of L equal layers, over that to the entries of L + 1."""
        return float(np.abs(self.o - (L - 1) / (2 * L)).max()) * 2 * L * (L + 1)

    @property
    def deviation(self) -> float:
        """How far the entries are from 0 and 1 at worst; of a repeated layer, from theirs in their distances."""
        if self.repeated > 1:
            return self._off_repeated(self.repeated)
        off = ~np.eye(len(self.o), dtype=bool)
        return float(np.abs(self.o - np.round(np.clip(self.o, 0, 1)))[off].max(initial=0.0))

    @property
    def own(self) -> float:
        """How far a head is from not feeding itself, at worst; 0 of a repeated layer, whose heads do."""
        return 0.0 if self.repeated > 1 else float(np.abs(np.diag(self.o)).max(initial=0.0))

    def layers(self) -> list[list[int]] | None:
        """Heads by layer, lowest first, those of a repeated layer in each of them; None unless "below" is what it is
        between layers of one stack."""
        if self.repeated > 1:
            return [list(range(len(self.o)))] * self.repeated
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


@dataclass(frozen=True)
class Size:
    """How large the linear system is: n heads whose W and P have ranks r and s, D directions, d outputs.

    Of many heads a few combinations of the outputs are enough: `outputs` of them are looked at.
    """

    n: int
    D: int
    d: int
    r: int
    s: int
    networks: bool

    @property
    def shared(self) -> int:
        """Unknowns that all outputs share: o, and phi_h in the directions that head h can see."""
        return self.n * self.n + self.n * min(self.D, self.r + self.s + 1)

    @property
    def own(self) -> int:
        """Unknowns of every output for itself: a constant, and behind networks a row of K_g on g's range."""
        return 1 + (self.n * self.s if self.networks else 0)

    @property
    def outputs(self) -> int:
        """Combinations of the outputs that are looked at."""
        return self.d if self.shared <= _FEW else min(self.d, _OUTPUTS)

    def contexts(self, over: float) -> int:
        """Contexts with `over` equations for each unknown."""
        return int(over * (self.shared / self.outputs + self.own))


def first_order(y: list[Array], scales: Array) -> Array:
    """The 1/lambda term (B, d) from answers y[i] (B, d) at lambda = scales[i], its mean over the contexts taken off.

    Of the polynomial in 1/lambda through all scales: what the answers are at infinity is not needed.
    """
    x = 1 / np.asarray(scales)
    coefficients = np.linalg.inv(x[:, None] ** np.arange(len(x)))[1]
    term = np.tensordot(coefficients, np.stack(y), axes=1)
    return np.asarray(term - term.mean(axis=0))


def find_order(
    heads: Heads, T: Array, contexts: Contexts, term: Array, networks: bool, limit: Array | None = None
) -> Order:
    """o from the 1/lambda term (B, d) at contexts that share one q; T (d, D) maps coordinates to tokens.

    Behind a final norm, `limit` (B, D) is what shows at infinity: the term then lacks its part along q and has
    -a limit in it, where a is what is written along q: by the heads, which are known, and by all else, one number.
    """
    n, (_, d) = len(heads), term.shape
    size = Size(n, T.shape[1], d, heads.B.shape[1], heads.V.shape[1], networks)
    E, q = np.eye(d), contexts.q[0]
    if limit is not None:
        E = np.linalg.qr(np.column_stack([q, np.eye(d)]))[0][:, 1:d]
    if size.outputs < d:
        E = E @ np.linalg.qr(np.random.default_rng(0).standard_normal((E.shape[1], size.outputs)))[0]
    written, shared = _columns(heads, T, contexts, E)
    if limit is not None:
        along = (written @ q).sum(axis=1, keepdims=True) / (q @ q)
        term = term + along * limit
        shared = np.concatenate([shared, (limit @ E)[:, :, None]], axis=2)
    own = [np.ones((len(term), 1))]
    if networks:
        across = np.eye(len(q)) - np.outer(q, q) / (q @ q)
        own += [_coordinates(written[:, g] @ across, size.s) for g in range(n)]
    # What every output has for itself is eliminated: the rest is seen across the span of those columns.
    Q = np.linalg.qr(np.concatenate(own, axis=1))[0]
    M, y = ((x - np.tensordot(Q, np.tensordot(Q.T, x, axes=1), axes=1)) for x in (shared, term @ E))
    M, y = M.reshape(y.size, -1), y.ravel()
    length = np.linalg.norm(M, axis=0) + 1e-300
    solution = _least_squares(M / length, y)
    heard = max(float(np.linalg.norm(y)), _HEARD * float(np.linalg.norm(term)), 1e-300)
    residual = float(np.linalg.norm(M / length @ solution - y)) / heard
    return Order((solution / length)[: n * n].reshape(n, n), residual)


def _columns(heads: Heads, T: Array, contexts: Contexts, E: Array) -> tuple[Array, Array]:
    """What heads write (B, n, D), and columns (B, outputs, unknowns) of o and phi, outputs combined by E."""
    q, n = contexts.q[0], len(heads)
    across = np.eye(len(q)) - np.outer(q, q) / (q @ q)
    seen_by = _seen_by(heads, q)
    looked = replace(heads, O=np.einsum("de,hds->hes", E, heads.O))
    rows = max(1, PART // (n * len(q) ** 2))
    written, columns = [], []
    for start in range(0, len(contexts), rows):
        part = contexts.take(slice(start, start + rows))
        at = at_work(heads, part.q, part)
        a = np.einsum("hes,bhs->bhe", heads.O, np.einsum("hsd,bhd->bhs", heads.V, at.values)) @ T
        DA = at_work(looked, part.q, part).by_own_of_each() @ across
        feeds = np.einsum("bhef,bgf->behg", DA, a @ across, optimize=True).reshape(len(part), E.shape[1], n * n)
        phi = [DA[:, h] @ seen_by[h] for h in range(n)]
        written.append(a)
        columns.append(np.concatenate([feeds, *phi], axis=2))
    return np.concatenate(written), np.concatenate(columns)


def _seen_by(heads: Heads, q: Array) -> list[Array]:
    """Directions (D, k) of the last token that a head can see: its query, its key at q and its value."""
    u = np.einsum("hdr,hr->hd", heads.A, heads.B @ q + heads.b)
    rows = np.concatenate([heads.B, heads.V, u[:, None]], axis=1)
    return [np.linalg.qr(own.T)[0] for own in rows]


def _least_squares(M: Array, y: Array) -> Array:
    """Columns of M have length one; large systems by their normal equations, which is enough to tell 0 from 1."""
    if M.size <= PART:
        return np.asarray(np.linalg.lstsq(M, y, rcond=NO_DIRECTION)[0])
    G = M.T @ M
    G[np.diag_indices_from(G)] += _DAMPING
    return np.asarray(cho_solve(cho_factor(G, overwrite_a=True, check_finite=False), M.T @ y))


def _coordinates(a: Array, rank: int) -> Array:
    """a (B, D) off its mean, in the few directions in which it moves."""
    moved = a - a.mean(axis=0)
    return np.asarray(moved @ svd(moved, full_matrices=False)[2][:rank].T)
