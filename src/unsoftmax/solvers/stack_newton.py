"""Gauss-Newton for stacks: normal equations are summed over parts of the data, so memory stays bounded.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", polish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from unsoftmax.probes.base import Array

_PART = 2**24
"""Numbers of a Jacobian that are held at once: 128 MB."""

_ARRIVED = 0.3
"""Relative gain below which a converging Gauss-Newton is at rounding: before, every step gains digits."""

_NEAR = 1e-6
"""Relative misfit below which steps converge quadratically: a small gain is then the end and not a detour."""

_FIRST_ORDER = 1e-6
"""Relative length of a step within which products of factors are linear to six digits."""

_STALLED = 1e-3
"""Relative gain below which a fit far from rounding is stuck."""


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
    last: int = 0,
    noise: float = 0.0,
    draws: int = 0,
    seed: int = 0,
) -> Fit[M]:
    """Least squares over all `data` from a start that is near; of the `last` parameters only, if given.

    `draws` models are added to the result, each moved as random answers' errors of the fit's own size (at least
    `noise`, absolute) would move it in the first order: they tell how well every parameter is known.
    """
    size = max(float(np.sqrt(sum((part.y**2).sum() for part in data))), 1e-300)
    damping = 1e-10
    cost = _cost(model, data)
    for _ in range(steps):
        held = model.flat.size - last if last else 0
        G, b = _normal(model, data, held=held)
        scale = np.sqrt(np.diag(G)) + 1e-300
        G = G / scale[:, None] / scale
        flat, new = model.flat, np.inf
        for _ in range(6):
            step = np.concatenate([np.zeros(held), _solve(G, b / scale, damping) / scale])
            trial = model.like(flat + step)
            new = _cost(trial, data)
            if new < cost:
                break
            damping *= 100
        else:
            break
        damping = max(damping / 100, 1e-13)
        gain = 1 - new / cost
        model, cost = trial, new
        if gain < (_ARRIVED if cost < _NEAR * size else _STALLED):
            break
    noise = max(noise, cost / np.sqrt(sum(part.y.size for part in data)))
    return Fit(model, cost / size, *_moved(model, data, noise, draws, seed))


def _moved(model: M, data: Sequence[Answered], noise: float, draws: int, seed: int) -> tuple[tuple[M, ...], float]:
    if not draws:
        return (), 1.0
    rng = np.random.default_rng([seed, 0x51A])
    G, B = _normal(model, data, [noise * rng.standard_normal((*part.y.shape, draws)) for part in data])
    scale = np.sqrt(np.diag(G)) + 1e-300
    steps = _solve(G / scale[:, None] / scale, B / scale[:, None], 1e-12) / scale[:, None]
    longest = float(np.linalg.norm(steps, axis=0).max() / max(float(np.linalg.norm(model.flat)), 1e-300))
    magnified = max(1.0, longest / _FIRST_ORDER)
    return tuple(model.like(model.flat + step / magnified) for step in steps.T), magnified


def _parts(model: M, data: Sequence[Answered]) -> Iterator[tuple[int, slice]]:
    for i, group in enumerate(data):
        rows = max(1, _PART // (model.flat.size * group.y.shape[1]))
        for start in range(0, len(group), rows):
            yield i, slice(start, start + rows)


def _cost(model: M, data: Sequence[Answered]) -> float:
    with np.errstate(all="ignore"):
        rest = [np.linalg.norm(group.y - model.answers(group)) for group in data]
    total = float(np.sqrt(np.sum(np.square(rest))))
    return total if np.isfinite(total) else np.inf


def _normal(model: M, data: Sequence[Answered], right: list[Array] | None = None, held: int = 0) -> tuple[Array, Array]:
    """J'J and J'(y - answers), or J' times the columns of `right` (B, d, k); of the parameters from `held` on."""
    size = model.flat.size - held
    G = np.zeros((size, size))
    b = np.zeros(size if right is None else (size, right[0].shape[2]))
    for i, rows in _parts(model, data):
        part = data[i].take(rows)
        out, J = model.jacobian(part)
        J = np.ascontiguousarray(J[:, :, held:]).reshape(-1, size)
        rest = part.y - out if right is None else right[i][rows]
        G += dsyrk(1.0, J, trans=1, lower=1)
        b += J.T @ rest.reshape(len(J), *rest.shape[2:])
    return np.tril(G) + np.tril(G, -1).T, b


def _solve(G: Array, b: Array, damping: float) -> Array:
    A = G.copy()
    A[np.diag_indices_from(A)] += damping
    try:
        return np.asarray(cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), b))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(G, b, rcond=damping)[0])
