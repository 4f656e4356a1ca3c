"""Least squares for one attention layer over known embeddings: values and places at one query, scores, or one place.

y = u + sum_h sum_j alpha_hj z_j P_h with z_j = u_j - u, u_j = x_j + p_j, and scores z_j . a_h(u); answers are rows.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense


def standard_errors(at: Dense, least: float) -> Array:
    """Standard errors (unknowns,) of a least-squares fit at its minimum, from what it leaves, `least` at least.

    Errors of what a fit takes for granted show in what it leaves, as far as its unknowns do not take them up.
    """
    rows, unknowns = at.J.shape
    size = np.maximum(np.linalg.norm(at.J, axis=0), 1e-300)
    J = at.J / size
    inverse = np.linalg.pinv(J.T @ J, rcond=np.finfo(np.float64).eps, hermitian=True)
    noise = max(float(np.linalg.norm(at.residual)) / np.sqrt(max(rows - unknowns, 1)), least)
    return np.asarray(noise * np.sqrt(np.maximum(np.diag(inverse), 0.0)) / size)


def attend(scores: Array) -> Array:
    """Weights (..., K) of keys whose scores count from the query's own, which has the rest."""
    top = np.maximum(scores.max(axis=-1, keepdims=True), 0.0)
    e = np.exp(scores - top)
    return np.asarray(e / (e.sum(axis=-1, keepdims=True) + np.exp(-top)))


@dataclass(frozen=True)
class _Written:
    """Keys z (n, K, d) with weights (n, H, K), values P (H, d, e): what is written and how scores move it."""

    z: Array
    weights: Array
    P: Array

    @property
    def mixed(self) -> Array:
        """sum_j alpha_hj z_j, (n, H, d)."""
        return np.asarray(self.weights @ self.z)

    def moved(self) -> Array:
        """d answers / d scores, (n, H, K, e)."""
        values = np.einsum("nkd,hde->nhke", self.z, self.P)
        mean = np.einsum("nhd,hde->nhe", self.mixed, self.P)
        return np.asarray(self.weights[..., None] * (values - mean[:, :, None]))


@dataclass(frozen=True)
class OneQuery:
    """Answers y (n, d) to keys (n, K, d) (embeddings x_j) before one and the same last token x (d,).

    Answers are in coordinates in which head h writes into columns cuts[h]:cuts[h + 1] (and, once `tilt` moves, others),
    `frame` (d, d) being hidden states in them. Unknowns: for each head Phi (d, w), tilt (w, d - w) and a (d,); places
    p_1 .. p_K (d,), the last that of the query. `own` (K - 1, m) are p_1 .. in the last m columns, into which no head
    writes.
    """

    y: Array
    keys: Array
    x: Array
    frame: Array
    cuts: tuple[int, ...]
    own: Array

    def unpack(self, v: Array) -> tuple[list[Array], list[Array], Array, Array]:
        """Phi and the full rows (w, d) they are multiplied by, for each head; a (H, d); places (K + 1, d), p_0 = 0."""
        d = len(self.x)
        Phi, rows, a, at = [], [], [], 0
        for lo, hi in zip(self.cuts, self.cuts[1:], strict=False):
            w = hi - lo
            Phi.append(v[at : at + d * w].reshape(d, w))
            at += d * w
            row = np.zeros((w, d))
            row[:, lo:hi] = np.eye(w)
            row[:, self._others(lo, hi)] = v[at : at + w * (d - w)].reshape(w, d - w)
            at += w * (d - w)
            rows.append(row)
            a.append(v[at : at + d])
            at += d
        return Phi, rows, np.array(a), np.concatenate([np.zeros((1, d)), v[at:].reshape(-1, d)])

    def pack(self, Phi: list[Array], a: Array, places: Array) -> Array:
        """The unknowns of a model without tilt."""
        parts = []
        for h, (lo, hi) in enumerate(zip(self.cuts, self.cuts[1:], strict=False)):
            parts += [Phi[h].ravel(), np.zeros((hi - lo) * (len(self.x) - hi + lo)), a[h]]
        return np.concatenate([*parts, places[1:].ravel()])

    def _others(self, lo: int, hi: int) -> Array:
        return np.delete(np.arange(len(self.x)), np.s_[lo:hi])

    def at(self, v: Array) -> Dense:
        Phi, rows, a, places = self.unpack(v)
        (n, K, d) = self.keys.shape
        last = self.x + places[K]
        z = self.keys + places[:K] - last
        written = _Written(
            z, attend(np.einsum("nkd,hd->nhk", z, a)), np.array([A @ B for A, B in zip(Phi, rows, strict=True)])
        )
        mixed, moved = written.mixed, written.moved()
        left = last @ self.frame + np.einsum("nhd,hde->ne", mixed, written.P) - self.y
        J = []
        for h, (lo, hi) in enumerate(zip(self.cuts, self.cuts[1:], strict=False)):
            others = self._others(lo, hi)
            J.append(np.einsum("nd,we->nedw", mixed[:, h], rows[h]).reshape(n * d, -1))
            tilt = np.zeros((n, d, hi - lo, len(others)))
            tilt[:, others, :, np.arange(len(others))] = mixed[:, h] @ Phi[h]
            J.append(tilt.reshape(n * d, -1))
            J.append(np.einsum("nke,nkd->ned", moved[:, h], z).reshape(n * d, d))
        by_place = np.einsum("nhk,hde->nked", written.weights, written.P) + np.einsum("nhke,hd->nked", moved, a)
        J += [by_place[:, j].reshape(n * d, d) for j in range(1, K)]
        J.append((self.frame.T - by_place.sum(axis=1)).reshape(n * d, d))
        return self._with_own(left.ravel(), np.concatenate(J, axis=1), places)

    def _with_own(self, left: Array, J: Array, places: Array) -> Dense:
        count, m = self.own.shape
        if not m:
            return Dense(left, J)
        beside, d = self.frame[:, len(self.x) - m :], len(self.x)
        rows = np.zeros((count, m, J.shape[1]))
        for j in range(count):
            at = J.shape[1] - (count + 1 - j) * d
            rows[j, :, at : at + d] = beside.T
        left = np.concatenate([left, (places[1:-1] @ beside - self.own).ravel()])
        return Dense(left, np.concatenate([J, rows.reshape(count * m, -1)]))


@dataclass(frozen=True)
class Scores:
    """What heads write, y (n, d), at keys z (n, K, d) for queries (n, m): scores z . keys_h factors_h query.

    keys_h (d, r) = B_h + C_h tilt_h, [B C] = `bases` (H, d, f) orthonormal. Unknowns are tilt (H, f - r, r) and factors
    (H, r, m); for one query, known by the feature 1, and keys that stay where they are, f = r, the factors alone.
    """

    y: Array
    z: Array
    P: Array
    queries: Array
    bases: Array
    rank: int

    def unpack(self, v: Array) -> tuple[Array, Array]:
        """Keys (H, d, r) and factors (H, r, m)."""
        (H, _, f), r = self.bases.shape, self.rank
        tilt = v[: H * (f - r) * r].reshape(H, f - r, r)
        return self.bases[:, :, :r] + self.bases[:, :, r:] @ tilt, v[tilt.size :].reshape(H, r, -1)

    def pack(self, factors: Array) -> Array:
        """The unknowns of keys without tilt."""
        (H, _, f), r = self.bases.shape, self.rank
        return np.concatenate([np.zeros(H * (f - r) * r), factors.ravel()])

    def at(self, v: Array) -> Dense:
        keys, factors = self.unpack(v)
        b = np.einsum("hrm,nm->nhr", factors, self.queries)
        zk = np.einsum("nkd,hdr->nhkr", self.z, keys)
        written = _Written(self.z, attend(np.einsum("nhkr,nhr->nhk", zk, b)), self.P)
        left = np.einsum("nhd,hde->ne", written.mixed, self.P) - self.y
        moved = written.moved()
        z = np.einsum("nkd,hdf->nhkf", self.z, self.bases[:, :, self.rank :])
        to_key = np.einsum("nhke,nhkf->nehf", moved, z, optimize=True)
        to_factor = np.einsum("nhke,nhkr->nehr", moved, zk, optimize=True)
        J_keys = np.einsum("nehf,nhr->nehfr", to_key, b).reshape(left.size, -1)
        J_factors = np.einsum("nehr,nm->nehrm", to_factor, self.queries).reshape(left.size, -1)
        return Dense(left.ravel(), np.concatenate([J_keys, J_factors], axis=1))


@dataclass(frozen=True)
class OnePlace:
    """Answers y (n, d) to known keys (n, K, d) before tokens x (n, d) in a place p (d,), the only unknown."""

    y: Array
    keys: Array
    x: Array
    W: Array
    c: Array
    P: Array

    def at(self, v: Array) -> Dense:
        last = self.x + v
        z = self.keys - last[:, None]
        a = np.einsum("hde,ne->nhd", self.W, last) + self.c
        written = _Written(z, attend(np.einsum("nkd,nhd->nhk", z, a)), self.P)
        left = last + np.einsum("nhd,hde->ne", written.mixed, self.P) - self.y
        moved = written.moved()
        # d scores / dp = z W_h - a_h, and every z moves by -p.
        slope = np.einsum("nkd,hde->nhke", z, self.W) - a[:, :, None]
        J = np.einsum("nhke,nhkd->ned", moved, slope) + np.eye(v.size)
        J = J - np.einsum("nhk,hde->ned", written.weights, self.P)
        return Dense(left.ravel(), J.reshape(left.size, v.size))
