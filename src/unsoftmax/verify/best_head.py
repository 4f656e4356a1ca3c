"""One head by fresh explanations: the best head near the one found leaves no more than rounding, or there is none.

Every answer is many numbers, each in units of what rounding or the declared tolerance leave. W and v are off by what
the learner states, so a right head may miss them; the least squares head near it may not, however large the stated
error is: no head leaves less, and the true one leaves rounding alone. As an instance of `solvers/gauss_newton.descend`
right heads were left the same, from about 15 lines more (a linearisation with all its products) in up to three times
the time: four steps near the end need no damping, and LSMR has not the squared condition of normal equations.

Theory: docs/theory/verification.md, "Noisy answers", one head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from unsoftmax.models.base import attention_weights
from unsoftmax.probes.base import Array
from unsoftmax.verify.constants_models import MODELS


@dataclass(frozen=True, eq=False)
class Round:
    """Tokens X (n, N, d) of fresh sequences, their answers (n, 1 + numbers) and what each number may be off by."""

    X: Array
    answers: Array
    allowed: Array


class Explaining:
    """A head's explanations of one round: what they are, and how they move with W and v."""

    def __init__(self, X: Array, W: Array, v: Array, *, maps: bool) -> None:
        self.X, self.W, self.v, self.maps = X, W, v, maps
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
        if self.maps:
            return self._joined(self.y, self.alpha)
        G = self.alpha[:, :, None] * self.v + self.pull[:, :, None] * self.u[:, None]
        G[:, -1] += self.pulled @ self.W
        return self._joined(self.y, G)

    def moved(self, W: Array, v: Array) -> Array:
        """How far they move, to first order, as W and v change by so much."""
        u = self.q @ W.T
        y = np.einsum("bd,bd->b", self.pulled, u) + self.mean @ v
        alpha = self.alpha * np.einsum("bnd,bd->bn", self.X - self.mean[:, None], u)
        if self.maps:
            return self._joined(y, alpha)
        pull = alpha * self.over + self.alpha * (self.X @ v - y[:, None])
        G = alpha[:, :, None] * self.v + self.alpha[:, :, None] * v
        G += pull[:, :, None] * self.u[:, None] + self.pull[:, :, None] * u[:, None]
        G[:, -1] += self.pulled @ W + np.einsum("bn,bnd->bd", pull, self.X) @ self.W
        return self._joined(y, G)

    def back(self, rows: Array) -> tuple[Array, Array]:
        """The adjoint of `moved`: W (d, d) and v (d,) of rows."""
        y, more = rows[:, 0], rows[:, 1:].reshape(self.alpha.shape if self.maps else self.X.shape)
        W, v, u = np.zeros_like(self.W), np.zeros_like(self.v), np.zeros_like(self.u)
        alpha = more
        if not self.maps:
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


def left_over(rounds: list[Round], W: Array, v: Array, off: tuple[float, float], *, maps: bool, enough: float) -> float:
    """Largest root mean square of a sequence's numbers, or value, in units of what they may be off by: the best head's.

    `off`: how far ||W||_F and ||v|| may be off. A head that leaves `enough` or less is as good as the best.
    """
    worst = _worst(rounds, W, v, maps=maps)
    d = len(v)
    units = np.concatenate([np.full(d * d, off[0] / d), np.full(d, off[1] / np.sqrt(d))])
    x = np.zeros(d * d + d)
    for _ in range(MODELS.best_steps):
        if not enough < worst < MODELS.best_far:
            break
        x = x + _step(rounds, W + _W(x * units, d), v + (x * units)[d * d :], x, units, maps=maps)
        left = _worst(rounds, W + _W(x * units, d), v + (x * units)[d * d :], maps=maps)
        gained, worst = left < MODELS.best_gain * worst, min(left, worst)
        if not gained:
            break
    return worst


def _W(x: Array, d: int) -> Array:
    return np.asarray(x[: d * d].reshape(d, d))


def _step(rounds: list[Round], W: Array, v: Array, x: Array, units: Array, *, maps: bool) -> Array:
    """A Gauss-Newton step, in units of the parameters' errors, that holds these small as well: they are at `x`."""
    d = len(v)
    seen = [Explaining(one.X, W, v, maps=maps) for one in rounds]
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


def _worst(rounds: list[Round], W: Array, v: Array, *, maps: bool) -> float:
    """Largest root mean square gap of a sequence, and gap of a value: it would drown among what explains it."""
    worst = 0.0
    for one in rounds:
        off = np.abs(one.answers - Explaining(one.X, W, v, maps=maps).rows()) / one.allowed
        # Squares of what is as far off as this would overflow.
        together = np.sqrt(np.mean(np.minimum(off, 1e27) ** 2, axis=1))
        worst = max(worst, float(together.max()), float(off[:, 0].max()))
    return worst
