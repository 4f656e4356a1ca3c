"""Heads in factors, and what they answer to one moving token among tokens that no layer can turn.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Contexts:
    """Sequences of frozen tokens around a moving one: q (B, D) the last token's direction, of length sqrt d, `scale`
    (B,) its length in that unit (unused by the wide model), others (B, N, D), log_counts (B, N), answers y (B, d).

    y is what the stack added to the last token; for the wide model less what it adds to that token alone.
    """

    q: Array
    others: Array
    log_counts: Array
    y: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: Array | slice) -> Contexts:
        """The sequences at `index`."""
        parts = (self.q, self.others, self.log_counts, self.y, self.scale)
        return Contexts(*(part[index] for part in parts))


@dataclass(frozen=True, eq=False)
class Heads:
    """n heads in factors: W_h = A_h B_h, c_h = A_h b_h, P_h = O_h V_h.

    A (n, D, r), B (n, r, D), b (n, r), O (n, d, s), V (n, s, D).
    """

    A: Array
    B: Array
    b: Array
    O: Array
    V: Array

    def __len__(self) -> int:
        return len(self.A)

    @property
    def W(self) -> Array:
        """(n, D, D)."""
        return np.asarray(self.A @ self.B)

    @property
    def c(self) -> Array:
        """(n, D)."""
        return np.einsum("hdr,hr->hd", self.A, self.b)

    @property
    def P(self) -> Array:
        """(n, d, D)."""
        return np.asarray(self.O @ self.V)

    @property
    def flat(self) -> Array:
        """All numbers, head by head."""
        parts = [part.reshape(len(self), -1) for part in (self.A, self.B, self.b, self.O, self.V)]
        return np.hstack(parts).ravel()

    def like(self, flat: Array) -> Heads:
        """Heads of the same shapes from `flat`."""
        rows = flat.reshape(len(self), -1)
        out, start = [], 0
        for part in (self.A, self.B, self.b, self.O, self.V):
            size = part[0].size
            out.append(rows[:, start : start + size].reshape(part.shape))
            start += size
        return Heads(*out)

    def take(self, index: list[int]) -> Heads:
        """The heads at `index`."""
        return Heads(*(part[index] for part in (self.A, self.B, self.b, self.O, self.V)))


def factored(W: Array, c: Array, P: Array, r: int, s: int) -> Heads:
    """W (n, D, D) with c (n, D) cut to rank r, P (n, d, D) to rank s."""
    A, B = _halves(np.concatenate([W, c[:, :, None]], axis=2), r)
    return Heads(A, B[:, :, :-1], B[:, :, -1], *_halves(P, s))


def _halves(M: Array, rank: int) -> tuple[Array, Array]:
    """Factors (n, d, rank) and (n, rank, D) of the nearest matrices of this rank, of equal singular values."""
    U, sizes, Vt = svd(M, full_matrices=False)
    root = np.sqrt(sizes[:, :rank])
    return U[:, :, :rank] * root[:, None], root[:, :, None] * Vt[:, :rank]


@dataclass(frozen=True, eq=False)
class AtWork:
    """One layer's heads at work: tokens X (B, N + 1, D), the last of them `own` (B, D); z (B, n, r), u (B, n, D), alpha
    (B, n, N + 1), mixed (B, n, D), values (B, n, D) what V reads, out (B, d).
    """

    heads: Heads
    own: Array
    X: Array
    z: Array
    u: Array
    alpha: Array
    mixed: Array
    values: Array
    out: Array

    def _by_u(self) -> Array:
        """Derivative of the answer by every head's u, (B, n, d, D)."""
        spread = np.einsum("bhi,bid,bie->bhde", self.alpha, self.X, self.X, optimize=True)
        spread -= self.mixed[..., None] * self.mixed[:, :, None]
        return np.asarray(self.heads.P @ spread)

    def by_parameters(self) -> Array:
        """(B, d, parameters), head by head in the order of Heads.flat."""
        heads, (B, d) = self.heads, self.out.shape
        by_u = self._by_u()
        by_z = by_u @ heads.A
        n, s = len(heads), heads.V.shape[1]
        written = np.einsum("hse,bhe->bhs", heads.V, self.values)
        by_O = np.einsum("ef,bhs->bhefs", np.eye(d), written)
        by_V = np.einsum("hes,bhd->bhesd", heads.O, self.values)
        blocks = [
            np.einsum("bhed,bhr->bhedr", by_u, self.z).reshape(B, n, d, -1),
            np.einsum("bher,bd->bherd", by_z, self.own).reshape(B, n, d, -1),
            by_z,
            by_O.reshape(B, n, d, d * s),
            by_V.reshape(B, n, d, -1),
        ]
        return np.concatenate(blocks, axis=3).transpose(0, 2, 1, 3).reshape(B, d, -1)

    def by_own(self) -> Array:
        """Derivative by the last token itself, (B, d, D), all heads together."""
        return np.asarray(self.by_own_of_each().sum(axis=1))

    def by_own_of_each(self) -> Array:
        """Derivative of every head's answer by the last token, (B, n, d, D): its query, its key and its value."""
        last = self.alpha[:, :, -1]
        as_key = (self.own[:, None] - self.mixed)[..., None] * self.u[:, :, None]
        inside = last[..., None, None] * (as_key + np.eye(self.own.shape[1]))
        return np.asarray(self._by_u() @ self.heads.W + self.heads.P @ inside)


def at_work(heads: Heads, own: Array, data: Contexts, *, minus_own: bool = False) -> AtWork:
    """Heads whose last token is seen as `own` (B, D); `minus_own` takes off what they answer to it alone."""
    X = np.concatenate([data.others, own[:, None]], axis=1)
    z = np.einsum("hrd,bd->bhr", heads.B, own) + heads.b
    u = np.einsum("hdr,bhr->bhd", heads.A, z)
    scores = np.einsum("bid,bhd->bhi", X, u)
    scores[:, :, :-1] += data.log_counts[:, None]
    alpha = softmax(scores, axis=2)
    mixed = alpha @ X
    values = mixed - own[:, None] if minus_own else mixed
    out = np.einsum("hes,bhs->be", heads.O, np.einsum("hsd,bhd->bhs", heads.V, values))
    return AtWork(heads, own, X, z, u, alpha, mixed, values, out)
