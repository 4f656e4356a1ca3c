"""A low-rank change of a head's scores, column by column: dW = U M at about k(2d - k) queries.

As many whole columns dW b as the table of `ranks` counted. Where these are not enough, k questions at a new b tell the
part of dW b inside the range U found so far, and six with a orthogonal to U whether anything is outside, against a
covariance that knows U's own errors; if so, that column is asked too. Then the rows: a = R U_i + c with c orthogonal to
U and free to tie scores, b outside the span of those used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.noise import group
from unsoftmax.comparing.reading import Reading, as_asked, read_one
from unsoftmax.comparing.scales import Sample
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes
from unsoftmax.solvers.gauss_newton import FEW_STEPS
from unsoftmax.verify.constants import VERIFY

PHASE = "delta"


@dataclass
class Search:
    """The state of one head's search: others subtracted as the reference's (or as `heads` corrected)."""

    state: Evidence
    heads: Heads
    h: int
    norm: float
    basis: Array
    """Orthonormal (d, e): the space in which a lies. All of it, or what other changed heads do not write."""
    columns: list[Array] = field(default_factory=list)
    errors: list[Array] = field(default_factory=list)
    at: list[Array] = field(default_factory=list)
    U: Array = field(init=False)
    """Orthonormal basis (e, k) of the columns found."""

    def __post_init__(self) -> None:
        self.U = np.zeros((self.basis.shape[1], 0))

    @property
    def v(self) -> Array:
        """What the head writes, in coordinates of the basis (e,)."""
        return np.asarray(self.heads.P[self.h, 0] @ self.basis)

    def ask(self, a: Array, b: Array) -> Asking[Reading]:
        state = self.state
        a = a @ self.basis.T
        X = state.plan.asked.on_grid(np.stack([a + b, b], axis=1), fine=True)
        made = group(PHASE, X, state.plan.noise, state.plan.constant, state.rng)
        y = yield Probes(X, phase=PHASE)
        state.samples.append((X, y, made.sd))
        read = as_asked(read_one(self.heads, self.h, made, y), b)
        return replace(read, a=read.a @ self.basis)

    def keys(self, b: Array) -> Array:
        return np.asarray(self.heads.key_directions(b)[self.h] @ self.basis)

    def draw(self, n: int) -> Array:
        """Query tokens (n, d) of the usual norm, orthogonal to v: the answer is then the other token's alone."""
        b = self.state.rng.standard_normal((n, self.heads.dim))
        v = self.heads.P[self.h, 0]
        b -= np.outer(b @ v, v) / (v @ v)
        return np.asarray(self.norm * b / np.linalg.norm(b, axis=1, keepdims=True))

    def tied(self, a: Array, b: Array, U: Array) -> Array:
        """Rows of a made large along v and nearly tied by components orthogonal to U."""
        outside = lambda x: x - (x @ U) @ U.T  # noqa: E731
        u = self.keys(b)
        vh = outside(np.broadcast_to(self.v, a.shape))
        vh = vh / np.maximum(np.linalg.norm(vh, axis=1, keepdims=True), 1e-300)
        sign = np.where((a * vh).sum(axis=1, keepdims=True) >= 0, 1.0, -1.0)
        a = a + sign * vh * np.linalg.norm(a, axis=1, keepdims=True)
        w = outside(u)
        w = w - (w * vh).sum(axis=1, keepdims=True) * vh
        score, room = (a * u).sum(axis=1), (w * u).sum(axis=1)
        gap = self.state.rng.uniform(-EXPLAINING.off_tie, EXPLAINING.off_tie, len(a)) - score
        free = room > EXPLAINING.outside_range * (u * u).sum(axis=1)
        tied = a + np.where(free, gap / np.where(free, room, 1.0), 0.0)[:, None] * w
        short = a * np.minimum(1.0, VERIFY.widest_score / np.maximum(np.abs(score), 1e-300))[:, None]
        return np.asarray(np.where(free[:, None], tied, short))

    def column(self, b: Array) -> Asking[None]:
        """dW b from d questions whose a span the space: all but one orthogonal to the key direction."""
        d, R = self.basis.shape[1], self.norm
        u = self.keys(b[None])[0]
        length = float(np.linalg.norm(u))
        uh = u / length
        vp = self.v - (self.v @ uh) * uh
        vp /= np.linalg.norm(vp)
        basis = np.linalg.qr(np.column_stack([uh, vp, self.state.rng.standard_normal((d, d - 2))]))[0][:, 2:].T
        A = np.vstack([R * (basis + vp) / np.sqrt(2), R * vp[None], R * vp[None] + uh[None] / length])
        read = yield from self.ask(A, np.tile(b, (d, 1)))
        readable = np.isfinite(read.sd)
        if not readable.any():
            raise np.linalg.LinAlgError("no answer of this column says anything")
        inverse = np.linalg.inv(read.a)
        self.columns.append(inverse @ np.where(readable, read.D, 0.0))
        self.errors.append(inverse * np.where(readable, read.sd, 1e6 * read.sd[readable].min())[None, :])
        self.at.append(read.b[0])
        # Of the bases of a range last digits choose one.
        (self.U,) = yield from settle("range", np.linalg.svd(np.array(self.columns).T, full_matrices=False)[0])

    def outside(self) -> Asking[Array | None]:
        """A query token at which the change leaves the range found so far; None if there is none."""
        U = self.U
        k = U.shape[1]
        b = self.draw(1) if k else self.draw(EXPLAINING.range_checks)
        inside, weights = np.zeros(0), np.zeros(0)
        if k:
            at = np.tile(b, (k, 1))
            read = yield from self.ask(self.tied(self.norm * U.T, at, U), at)
            inside = np.linalg.solve(read.a @ U, read.D)
            weights = np.linalg.solve(U.T @ np.array(self.columns).T, inside)
            b = np.tile(b, (EXPLAINING.range_checks, 1))
        free = self.state.rng.standard_normal((EXPLAINING.range_checks, self.basis.shape[1]))
        free -= (free @ U) @ U.T
        free *= self.norm / np.linalg.norm(free, axis=1, keepdims=True)
        read = yield from self.ask(self.tied(free, b, U), b)
        D = read.D - read.a @ U @ inside
        cover = np.diag(np.where(np.isfinite(read.sd), read.sd, 1e6) ** 2)
        for weight, error in zip(weights, self.errors, strict=True):
            cover += weight**2 * (read.a @ error) @ (read.a @ error).T
        leaves = float(D @ np.linalg.solve(cover, D)) >= float(
            stats.chi2.ppf(1 - EXPLAINING.tail, EXPLAINING.range_checks)
        )
        clearest = int(np.argmax(np.abs(D) / np.sqrt(np.diag(cover))))
        outside, at = yield from settle("leaves the range", leaves, clearest)
        return np.asarray(read.b[int(at)]) if outside else None

    def found(self, at: Array, most: int, *, checked: bool) -> Asking[tuple[Array, Array] | None]:
        """U (d, k) and M (k, d) with basis basis' dW_h = U M, from columns at the query tokens `at` (k, d); None if the
        rank exceeds `most`.

        `checked`: and from further ones while the change leaves their range.
        """
        try:
            for b in at:
                yield from self.column(b)
            while checked:
                where = yield from self.outside()
                if where is None:
                    break
                if len(self.columns) >= most:
                    return None
                yield from self.column(where)
            return (yield from self.factors())
        except np.linalg.LinAlgError:
            # A change so large that it shuts most sequences: their readings are no numbers to solve with.
            return None

    def worth_checking(self, rank: int) -> bool:
        """Whether the check costs less than a part of the unknowns; fresh sequences verify the change anyway."""
        return EXPLAINING.unknowns_per_question * (rank + EXPLAINING.range_checks) <= rank * (2 * self.heads.dim - rank)

    def factors(self) -> Asking[tuple[Array, Array]]:
        """U and M from the columns so far, and the rows."""
        if not self.columns:
            return np.zeros((self.heads.dim, 0)), np.zeros((0, self.heads.dim))
        M = yield from self.rows()
        return self.basis @ self.U, M

    def rows(self) -> Asking[Array]:
        """M (k, d) with dW = U M: k(d - k) questions, and the columns already known."""
        U = self.U
        d, k = self.heads.dim, U.shape[1]
        (rest,) = yield from settle("rest", np.linalg.svd(np.array(self.at).T)[0][:, k:].T * self.norm)
        lhs, rhs, sd = [], [], []
        for i in range(k):
            read = yield from self.ask(self.tied(np.tile(self.norm * U[:, i], (d - k, 1)), rest, U), rest)
            lhs.append(np.einsum("qk,qd->qkd", read.a @ U, read.b).reshape(len(read.D), -1))
            rhs.append(read.D)
            sd.append(read.sd)
        for column, error, b in zip(self.columns, self.errors, self.at, strict=True):
            lhs.append(np.einsum("ik,d->ikd", np.eye(k), b).reshape(k, -1))
            rhs.append(U.T @ column)
            sd.append(np.linalg.norm(U.T @ error, axis=1))
        weight = 1 / np.concatenate(sd)
        found = np.linalg.lstsq(np.vstack(lhs) * weight[:, None], np.concatenate(rhs) * weight, rcond=None)[0]
        return np.asarray(found.reshape(k, d))


Factors = dict[int, tuple[Array, Array]]
"""U (d, k) and M (k, d) by head."""


def polished(heads: Heads, factors: Factors, samples: list[Sample]) -> tuple[Factors, Array]:
    """Factors by head of the lowest ranks that explain the answers as well as those given, and dW (H, d, d).

    A column that a large change of another head reached into counts as a direction of its own.
    """
    parts, left = _fitted(heads, factors, samples)
    for h in factors:
        while parts[h][0].shape[1] > 1:
            fewer, rest = _fitted(heads, parts | {h: _cut(*parts[h])}, samples)
            if rest > max(EXPLAINING.as_well * left, 1.0):
                break
            parts, left = fewer, rest
    return parts, _products(heads, parts)


def _cut(U: Array, M: Array) -> tuple[Array, Array]:
    """Factors of the nearest product of one rank less."""
    left, sizes, right = np.linalg.svd(U @ M)
    k = U.shape[1] - 1
    return left[:, :k] * sizes[:k], right[:k]


def _fitted(heads: Heads, factors: Factors, samples: list[Sample]) -> tuple[Factors, float]:
    """Factors fitted to all two-token answers at once (Gauss-Newton, least-norm gauge), and the root mean square of
    what they leave in units of rounding."""
    pairs = [(X, y, sd) for X, y, sd in samples if X.shape[1] == 2]
    X, y, sd = (np.concatenate([part[i] for part in pairs]) for i in range(3))

    def left(parts: Factors) -> Array:
        return np.asarray((y - heads.with_scores(heads.W + _products(heads, parts))(X)) / sd)

    parts = dict(factors)
    r = left(parts)
    for _ in range(FEW_STEPS):
        step = _step(heads, parts, X, sd, r)
        tried = (
            {h: (U + t * step[h][0], M + t * step[h][1]) for h, (U, M) in parts.items()} for t in EXPLAINING.step_parts
        )
        better = next(((p, rest) for p in tried if np.linalg.norm(rest := left(p)) < np.linalg.norm(r)), None)
        if better is None:
            break
        done = np.linalg.norm(better[1]) > EXPLAINING.last_step * np.linalg.norm(r)
        parts, r = better
        if done:
            break
    return parts, float(np.sqrt(np.mean(r**2)))


def _step(heads: Heads, parts: Factors, X: Array, sd: Array, r: Array) -> Factors:
    """What the factors must be changed by, to first order."""
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    t = heads.with_scores(heads.W + _products(heads, parts)).gaps(X)
    slope = 1 / (2 + np.exp(t) + np.exp(-t))
    columns = []
    for h, (U, M) in parts.items():
        gain = (slope[h] * (a @ heads.P[h, 0]) / sd)[:, None, None]
        columns.append((gain * np.einsum("bi,bk->bik", a, b @ M.T)).reshape(len(X), -1))
        columns.append((gain * np.einsum("bk,bj->bkj", a @ U, b)).reshape(len(X), -1))
    step = np.linalg.lstsq(np.hstack(columns), r, rcond=EXPLAINING.rounding_cut)[0]
    found, place = {}, 0
    for h, (U, M) in parts.items():
        dU = step[place : place + U.size].reshape(U.shape)
        dM = step[place + U.size : place + U.size + M.size].reshape(M.shape)
        found[h] = dU, dM
        place += U.size + M.size
    return found


def _products(heads: Heads, parts: Factors) -> Array:
    """dW (H, d, d) of factors by head."""
    delta = np.zeros_like(heads.W)
    for h, (U, M) in parts.items():
        delta[h] = U @ M
    return delta
