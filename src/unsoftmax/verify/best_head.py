"""One head by fresh answers: the best head near the one found leaves no more than rounding, or there is none.

Every answer is many numbers, each in units of what rounding or the declared tolerance leave. W and v are off by what
the learner states, so a right head may miss them; the least squares head near it may not, however large the stated
error is: no head leaves less, and the true one leaves rounding alone. As an instance of `solvers/gauss_newton.descend`
right heads were left the same, from about 15 lines more (a linearisation with all its products) in up to three times
the time: four steps near the end need no damping, and LSMR has not the squared condition of normal equations.

Theory: docs/theory/verification.md, "Noisy answers", one head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from unsoftmax.models.base import attention_weights
from unsoftmax.probes.base import Array
from unsoftmax.spec import EXPLAINED, Kind
from unsoftmax.verify.constants_models import MODELS


@dataclass(frozen=True, eq=False)
class Round:
    """Tokens X (n, N, d) of fresh sequences, their answers (n, 1 + numbers) and what each number may be off by."""

    X: Array
    answers: Array
    allowed: Array


class Explaining:
    """A head's explanations of one round: what they are, and how they move with W and v."""

    def __init__(self, X: Array, W: Array, v: Array, kind: Kind) -> None:
        self.X, self.W, self.v, self.kind = X, W, v, kind
        self.q = X[:, -1]
        self.u = self.q @ W.T
        self.alpha = attention_weights(np.einsum("bnd,bd->bn", X, self.u)[:, None], None)[:, 0]
        self.mean = np.einsum("bn,bnd->bd", self.alpha, X)
        self.y = self.mean @ v
        self.over = X @ v - self.y[:, None]
        self.pull = self.alpha * self.over
        self.pulled = np.einsum("bn,bnd->bd", self.pull, X)

    def rows(self) -> Array:
        """The answers (n, 1 + numbers)."""
        if self.kind not in EXPLAINED:
            return self.y[:, None]
        if self.kind == "attention":
            return self._joined(self.y, self.alpha)
        G = self.alpha[:, :, None] * self.v + self.pull[:, :, None] * self.u[:, None]
        G[:, -1] += self.pulled @ self.W
        return self._joined(self.y, G)

    def moved(self, W: Array, v: Array) -> Array:
        """How far they move, to first order, as W and v change by so much."""
        u = self.q @ W.T
        y = np.einsum("bd,bd->b", self.pulled, u) + self.mean @ v
        if self.kind not in EXPLAINED:
            return y[:, None]
        alpha = self.alpha * np.einsum("bnd,bd->bn", self.X - self.mean[:, None], u)
        if self.kind == "attention":
            return self._joined(y, alpha)
        pull = alpha * self.over + self.alpha * (self.X @ v - y[:, None])
        G = alpha[:, :, None] * self.v + self.alpha[:, :, None] * v
        G += pull[:, :, None] * self.u[:, None] + self.pull[:, :, None] * u[:, None]
        G[:, -1] += self.pulled @ W + np.einsum("bn,bnd->bd", pull, self.X) @ self.W
        return self._joined(y, G)

    def back(self, rows: Array) -> tuple[Array, Array]:
        """The adjoint of `moved`: W (d, d) and v (d,) of rows."""
        y, more = rows[:, 0], rows[:, 1:]
        W, v, u = np.zeros_like(self.W), np.zeros_like(self.v), np.zeros_like(self.u)
        alpha = more if self.kind == "attention" else np.zeros_like(self.alpha)
        if self.kind == "gradient":
            more = more.reshape(self.X.shape)
            pull = np.einsum("bnd,bd->bn", more, self.u) + np.einsum("bnd,bd->bn", self.X, more[:, -1] @ self.W.T)
            alpha = more @ self.v + pull * self.over
            y = y - (pull * self.alpha).sum(axis=1)
            v = np.einsum("bn,bnd->d", self.alpha, more) + np.einsum("bn,bnd->d", pull * self.alpha, self.X)
            u = np.einsum("bn,bnd->bd", self.pull, more)
            W = self.pulled.T @ more[:, -1]
        weighed = alpha * self.alpha
        u = u + y[:, None] * self.pulled + np.einsum("bn,bnd->bd", weighed, self.X)
        u = u - weighed.sum(axis=1)[:, None] * self.mean
        return W + u.T @ self.q, v + y @ self.mean

    @staticmethod
    def _joined(y: Array, more: Array) -> Array:
        return np.concatenate([y[:, None], more.reshape(len(y), -1)], axis=1)


def left_over(rounds: list[Round], W: Array, v: Array, off: tuple[float, float], kind: Kind, *, enough: float) -> float:
    """Largest root mean square of a sequence's numbers, or value, in units of what they may be off by: the best head's.

    `off`: how far ||W||_F and ||v|| may be off. A head that leaves `enough` or less is as good as the best.
    """
    d = len(v)
    units = np.concatenate([np.full(d * d, off[0] / d), np.full(d, off[1] / np.sqrt(d))])
    x = np.zeros(d * d + d)
    worst, weighed = _worst(rounds, W, v, kind), rounds
    for _ in range(MODELS.best_steps if kind in EXPLAINED else MODELS.best_by_values):
        if not (enough < worst and np.isfinite(worst)):
            break
        x = x + _step(weighed, W + _W(x * units, d), v + (x * units)[d * d :], x, units, kind)
        near = W + _W(x * units, d), v + (x * units)[d * d :]
        left = _worst(rounds, *near, kind)
        gained, worst = left < MODELS.best_gain * worst, min(left, worst)
        if not gained and kind in EXPLAINED:
            break
        if not gained:
            weighed = _weighed(rounds, weighed, *near)
    return worst


def _weighed(rounds: list[Round], before: list[Round], W: Array, v: Array) -> list[Round]:
    """Values that a head misses by more than others count for more in the next step, by what they had counted for
    (Lawson 1961): hostile errors lie where least squares leave most, and the least largest gap is theirs at most."""
    gaps = [np.abs(one.answers - Explaining(one.X, W, v, "value").rows()) / one.allowed for one in rounds]
    weights = [gap * (one.allowed / old.allowed) ** 2 for gap, one, old in zip(gaps, rounds, before, strict=True)]
    mean = float(np.mean(np.concatenate(weights)))
    return [
        replace(one, allowed=one.allowed / np.sqrt(np.maximum(weight / mean, MODELS.best_lightest)))
        for one, weight in zip(rounds, weights, strict=True)
    ]


def _W(x: Array, d: int) -> Array:
    return np.asarray(x[: d * d].reshape(d, d))


def _step(rounds: list[Round], W: Array, v: Array, x: Array, units: Array, kind: Kind) -> Array:
    """A Gauss-Newton step, in units of the parameters' errors, that holds these small as well: they are at `x`."""
    if kind not in EXPLAINED:
        return _step_by_values(rounds, W, v, x, units)
    d = len(v)
    seen = [Explaining(one.X, W, v, kind) for one in rounds]
    sizes = [one.answers.size for one in rounds]

    def forward(step: Array) -> Array:
        dW, dv = _W(step.ravel() * units, d), (step.ravel() * units)[d * d :]
        parts = [(part.moved(dW, dv) / one.allowed).ravel() for part, one in zip(seen, rounds, strict=True)]
        return np.concatenate([*parts, step.ravel()])

    def backward(rows: Array) -> Array:
        total = np.zeros(d * d + d)
        for part, one, own in zip(seen, rounds, np.split(rows, np.cumsum(sizes)), strict=False):
            dW, dv = part.back(own.reshape(one.answers.shape) / one.allowed)
            total += np.concatenate([dW.ravel(), dv])
        return total * units + rows[sum(sizes) :]

    off = [((one.answers - part.rows()) / one.allowed).ravel() for part, one in zip(seen, rounds, strict=True)]
    A = LinearOperator((sum(sizes) + len(x), len(x)), matvec=forward, rmatvec=backward, dtype=np.float64)
    return np.asarray(
        lsmr(
            A,
            np.concatenate([*off, -x]),
            atol=MODELS.best_digits,
            btol=MODELS.best_digits,
            maxiter=MODELS.best_iterations,
        )[0]
    )


def _step_by_values(rounds: list[Round], W: Array, v: Array, x: Array, units: Array) -> Array:
    """The same where answers are values: fewer than unknowns, so that their Gram matrix (n, n) is solved with."""
    d = len(v)
    seen = [Explaining(one.X, W, v, "value") for one in rounds]
    allowed = np.concatenate([one.allowed for one in rounds])
    off = np.concatenate([one.answers - part.rows() for one, part in zip(rounds, seen, strict=True)])
    by_W = np.concatenate([part.pulled for part in seen]) / allowed * units[0]
    by_v = np.concatenate([part.mean for part in seen]) / allowed * units[-1]
    q = np.concatenate([part.q for part in seen])
    moved = np.einsum("nd,de,ne->n", by_W, _W(x, d), q) + by_v @ x[d * d :]
    gram = (by_W @ by_W.T) * (q @ q.T) + by_v @ by_v.T
    z = np.linalg.solve(gram + np.eye(len(q)), (off / allowed)[:, 0] + moved)
    return np.concatenate([((by_W * z[:, None]).T @ q).ravel(), by_v.T @ z]) - x


def _worst(rounds: list[Round], W: Array, v: Array, kind: Kind) -> float:
    """Largest root mean square gap of a sequence, and gap of a value: it would drown among what explains it."""
    worst = 0.0
    for one in rounds:
        off = np.abs(one.answers - Explaining(one.X, W, v, kind).rows()) / one.allowed
        # Squares of what is as far off as this would overflow.
        together = np.sqrt(np.mean(np.minimum(off, 1e27) ** 2, axis=1))
        worst = max(worst, float(together.max()), float(off[:, 0].max()))
    return worst
