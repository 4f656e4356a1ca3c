"""How a network behind attention behaves at infinity: its degree of homogeneity, and rows at which it is large.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.probes.base import Array
from unsoftmax.probes.rays import halved
from unsoftmax.probes.scales import on_grid
from unsoftmax.spec import OracleSpec

_FIRST = {"float64": 2.0**30, "float32": 2.0**14}
"""Length of tokens the search begins with, by number format: half the digits of a format beside biases of order one.
The growth from there tells whether it was enough."""

_LAST = {"float64": 2.0**400, "float32": 2.0**60}
"""Length of tokens at which the search is given up, by number format: the square of an answer in proportion to it does
not overflow."""


@dataclass(frozen=True, eq=False)
class Infinity:
    """From `length` on the network is homogeneous of `degree`; `noise` is how exactly; largest along `direction`."""

    length: float
    degree: int
    noise: float
    direction: Array


def find_infinity(spec: OracleSpec, rng: np.random.Generator) -> Asking[Infinity]:
    """Grow the tokens until answers scale by a whole power of the growth."""
    for _ in range(BEHIND.draws_of_rays):
        found = yield from _growth(spec, rng)
        if found is not None:
            return found
    raise NotIdentifiable(
        "the network behind attention is constant at infinity along "
        f"{BEHIND.draws_of_rays * BEHIND.rays_asked_together} random rays (its answers "
        "stop growing with the tokens), so rays do not show W; bounded activations such as tanh do that."
    )


def _growth(spec: OracleSpec, rng: np.random.Generator) -> Asking[Infinity | None]:
    """The degree along a few random rays; None if the network is constant along all of them."""
    x = on_grid(rng.standard_normal((BEHIND.rays_asked_together, spec.dim)) / math.sqrt(spec.dim), 8.0, spec.dtype)
    lam, before = _FIRST[spec.dtype], math.inf
    y = yield halved(x, lam, "pilot")
    while lam <= _LAST[spec.dtype]:
        grown = yield halved(x, BEHIND.growth_per_round * lam, "pilot")
        # Rays along which the network has died out say nothing about how the others grow.
        live = np.abs(grown) > BEHIND.dead_ray * np.abs(grown).max()
        if not live.any():
            return None
        with np.errstate(divide="ignore"):
            growth = float(np.median(np.log(np.abs(grown[live] / y[live])))) / math.log(BEHIND.growth_per_round)
        degree = round(growth) if math.isfinite(growth) else 0
        gap = float(np.abs(grown - y * BEHIND.growth_per_round**degree)[live].max() / np.median(np.abs(grown[live])))
        if gap <= BEHIND.exact_growth * spec.eps or (gap <= BEHIND.noisy_growth * spec.eps and gap > before / 16):
            if degree < 1:
                return None
            best = np.argmax(np.abs(grown) / np.linalg.norm(x, axis=1) ** degree)
            return Infinity(
                BEHIND.growth_per_round * lam, degree, max(gap, spec.eps), x[best] / np.linalg.norm(x[best])
            )
        lam, y, before = lam * BEHIND.growth_per_round, grown, gap
    raise ModelMismatch(
        f"answers do not scale by a power of the tokens even at length {lam:.1g} (gap {gap:.1g}): the network behind "
        "attention is not homogeneous at infinity, as ReLU, GELU and SwiGLU networks are."
    )


def calibrated_rows(infinity: Infinity, spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Array, Array]]:
    """Independent rows A (d, d) around the direction, and c (d,): the answer at lam a, all of them large.

    Rows cos(tilt) n +- sin(tilt) u; a row whose |c| is small is turned to the other side, then a quarter closer to n:
    in the end it is 0.03 off.
    """
    d, n = spec.dim, infinity.direction
    frame = np.linalg.qr(np.column_stack([n, rng.standard_normal((d, d - 1))]))[0].T
    side, tilt = np.ones(d), np.full(d, BEHIND.tilt_of_rows)
    tilt[0] = 0.0
    A, y = np.empty((d, d)), np.zeros(d)
    todo, phase = np.arange(d), "values"
    for attempt in range(2 * CORE.repairs):
        rows = np.cos(tilt[todo])[:, None] * n + (side * np.sin(tilt))[todo, None] * frame[todo]
        rows = on_grid(rows, 2.0, spec.dtype)
        answers = yield halved(rows, infinity.length, phase)
        better = np.abs(answers) > np.abs(y[todo])
        A[todo[better]], y[todo[better]] = rows[better], answers[better]
        todo = np.flatnonzero(np.abs(y) < BEHIND.large_row * abs(y[0]))
        if not len(todo):
            break
        phase, side[todo] = "repair", -side[todo]
        if attempt % 2:
            tilt[todo] *= 0.75
    if np.abs(y).min() < BEHIND.usable_row * abs(y[0]) or y[0] == 0:
        raise NotIdentifiable(
            "the network behind attention nearly vanishes along "
            f"{int((np.abs(y) < BEHIND.usable_row * abs(y[0])).sum())} of {d} "
            "directions around its largest one; scores cannot be read there. Try another seed."
        )
    return A, y * 2.0**infinity.degree
