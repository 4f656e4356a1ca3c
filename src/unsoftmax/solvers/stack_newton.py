"""Gauss-Newton for stacks: normal equations are summed over parts of the data, so memory stays bounded.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", polish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.linalg.blas import dsyrk

from unsoftmax.probes.base import Array
from unsoftmax.solvers.chord import NEAR, Descent, Settled, factored, settle

PART = 2**24
"""Numbers of a Jacobian that are held at once: 128 MB."""

_DESCENT = Descent(1e-10, factor=100.0, least=1e-13, tries=6, steps=12, near=0.0, arrived=0.3, stalled=1e-3)
"""Factors leave directions of no information, which the least damping keeps at rest. Near the solution every step gains
digits until rounding, so that one that gains less than 0.3 was the last; far from it, one that gains 1e-3 is stuck."""

_FIRST_ORDER = 1e-6
"""Relative length of a step within which products of factors are linear to six digits."""


class Answered(Protocol):
    """Data of a fit: answers y (B, d) and whatever the model needs to predict them."""

    @property
    def y(self) -> Array: ...

    def __len__(self) -> int: ...

    def take(self, index: Array | slice) -> Self:
        """The part at `index`."""


class Adjustable(Protocol):
    """A model whose numbers are fitted."""

    @property
    def flat(self) -> Array: ...

    def like(self, flat: Array) -> Self:
        """The same model with these numbers."""

    def answers(self, data: Any) -> Array:
        """(B, d)."""

    def jacobian(self, data: Any) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters)."""


M = TypeVar("M", bound=Adjustable)


@dataclass(frozen=True, eq=False)
class Fit(Generic[M]):
    """The model where Gauss-Newton ended, its misfit relative to the answers, and how answers' noise moves it."""

    model: M
    residual: float
    moved: tuple[M, ...] = ()
    magnified: float = 1.0
    """How much further than in `moved` the noise would move the model: long steps are shortened to stay in the first
    order."""


def gauss_newton(
    model: M,
    data: Sequence[Answered],
    *,
    steps: int = 12,
    held: int = 0,
    noise: float = 0.0,
    draws: int = 0,
    seed: int = 0,
    enough: float = 0.0,
) -> Fit[M]:
    """Least squares over all `data` from a start that is near; the first `held` parameters stay. Ends at a
    misfit of `enough` per number.

    `draws` models are added to the result, each moved as random answers' errors of the fit's own size (at least
    `noise`, absolute) would move it in the first order: they tell how well every parameter is known.
    """
    size = max(float(np.sqrt(sum((part.y**2).sum() for part in data))), 1e-300)
    numbers = sum(part.y.size for part in data)
    problem = _Fitted(model, data, held)
    how = replace(_DESCENT, steps=steps, near=NEAR * size, enough=enough * np.sqrt(numbers))
    found = settle(problem, model.flat[problem.held :], how)
    model = problem.like(found.x)
    noise = max(noise, found.cost / np.sqrt(numbers))
    moved = _moved(problem, found, noise, draws, seed) if draws else ()
    return Fit(model, found.cost / size, *moved)


def _moved(problem: _Fitted[M], found: Settled, noise: float, draws: int, seed: int) -> tuple[tuple[M, ...], float]:
    """Moved models, and how much their steps were shortened."""
    rng = np.random.default_rng([seed, 0x51A])
    errors = [noise * rng.standard_normal((*part.y.shape, draws)) for part in problem.data]
    # J'J and J' of one point: what one of them does not see at all, the other would take for a long step.
    G, at = found.formed or (problem.normal(found.x)[0], found.x)
    solve = factored(G, 1e-12)
    steps = [solve(b) for b in problem.seen(problem.like(at), errors).T]
    longest = max(map(np.linalg.norm, steps)) / max(float(np.linalg.norm(found.x)), 1e-300)
    magnified = max(1.0, float(longest) / _FIRST_ORDER)
    return tuple(problem.like(found.x + step / magnified) for step in steps), magnified


@dataclass(frozen=True, eq=False)
class _Fitted(Generic[M]):
    """The fit as a problem in the parameters from `held` on."""

    model: M
    data: Sequence[Answered]
    held: int

    def like(self, x: Array) -> M:
        return self.model.like(np.concatenate([self.model.flat[: self.held], x]))

    def cost(self, x: Array) -> float:
        model = self.like(x)
        with np.errstate(all="ignore"):
            rest = [np.linalg.norm(group.y - model.answers(group)) for group in self.data]
        total = float(np.sqrt(np.sum(np.square(rest))))
        return total if np.isfinite(total) else np.inf

    def normal(self, x: Array) -> tuple[Array, Array]:
        model = self.like(x)
        G, b = np.zeros((x.size, x.size)), np.zeros(x.size)
        for i, rows in _parts(model, self.data):
            part = self.data[i].take(rows)
            out, J = model.jacobian(part)
            J = np.ascontiguousarray(J[:, :, self.held :]).reshape(-1, x.size)
            G += dsyrk(1.0, J.T, lower=1)
            b += J.T @ (part.y - out).ravel()
        return G, b

    def gradient(self, x: Array) -> Array:
        model = self.like(x)
        return self.seen(model, [group.y - model.answers(group) for group in self.data])

    def seen(self, model: M, errors: list[Array]) -> Array:
        """J' errors (parameters, ...) of errors (B, d, ...)."""
        out: Array | float = 0.0
        for i, rows in _parts(model, self.data):
            J = model.jacobian(self.data[i].take(rows))[1][:, :, self.held :]
            out = out + np.tensordot(J, errors[i][rows], axes=((0, 1), (0, 1)))
        return np.asarray(out)


def _parts(model: M, data: Sequence[Answered]) -> Iterator[tuple[int, slice]]:
    for i, group in enumerate(data):
        rows = max(1, PART // (model.flat.size * group.y.shape[1]))
        for start in range(0, len(group), rows):
            yield i, slice(start, start + rows)
