"""How a network behind attention behaves at infinity: its degree of homogeneity, and rows at which it is large.

Theory: docs/theory/transformer.md, "Rays".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import REPAIRS
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

_STEP = 64.0
"""Factor by which tokens grow per round. A power of two, so that growth itself rounds nothing; large, since all rounds
cost the same and what is not homogeneous falls by it every time."""

_DIRECTIONS = 4
"""Random rays asked together; the median of their growth is the degree."""

_DRAWS = 8
"""Sets of rays drawn before the network is called constant at infinity: 8 of 4 rays each."""

_DEAD = 1e-6
"""Share of the largest answer below which a ray counts as one along which the network has died out."""

_EXACT = 32.0
"""Gap between grown answers and the power of the growth, in units of rounding, that is none: the sums of a network
round more than once."""

_TOLERABLE = 2.0**16
"""Gap to homogeneity, in units of rounding, that is taken for the target's own noise once it has stopped shrinking."""

_TILT = 0.9
"""Angle of the rows to the best direction: far enough to be independent, and most networks are still large there."""

LARGE = 0.15
"""A row at which the network answers less than this share of what it does along the best direction is drawn again: it
would lose most of a digit."""

USABLE = 1e-3
"""A row that still answers less than this share of the best after all draws reads nothing: three digits would be lost;
and a corner must be as loud with all heads on or half on, which are in proportion to this accuracy."""


@dataclass(frozen=True, eq=False)
class Infinity:
    """From `length` on the network is homogeneous of `degree`; `noise` is how exactly; largest along `direction`."""

    length: float
    degree: int
    noise: float
    direction: Array


def find_infinity(spec: OracleSpec, rng: np.random.Generator) -> Asking[Infinity]:
    """Grow the tokens until answers scale by a whole power of the growth."""
    for _ in range(_DRAWS):
        found = yield from _growth(spec, rng)
        if found is not None:
            return found
    raise NotIdentifiable(
        f"the network behind attention is constant at infinity along {_DRAWS * _DIRECTIONS} random rays (its answers "
        "stop growing with the tokens), so rays do not show W; bounded activations such as tanh do that."
    )


def _growth(spec: OracleSpec, rng: np.random.Generator) -> Asking[Infinity | None]:
    """The degree along a few random rays; None if the network is constant along all of them."""
    x = on_grid(rng.standard_normal((_DIRECTIONS, spec.dim)) / math.sqrt(spec.dim), 8.0, spec.dtype)
    lam, before = _FIRST[spec.dtype], math.inf
    y = yield halved(x, lam, "pilot")
    while lam <= _LAST[spec.dtype]:
        grown = yield halved(x, _STEP * lam, "pilot")
        # Rays along which the network has died out say nothing about how the others grow.
        live = np.abs(grown) > _DEAD * np.abs(grown).max()
        if not live.any():
            return None
        with np.errstate(divide="ignore"):
            growth = float(np.median(np.log(np.abs(grown[live] / y[live])))) / math.log(_STEP)
        degree = round(growth) if math.isfinite(growth) else 0
        gap = float(np.abs(grown - y * _STEP**degree)[live].max() / np.median(np.abs(grown[live])))
        if gap <= _EXACT * spec.eps or (gap <= _TOLERABLE * spec.eps and gap > before / 16):
            if degree < 1:
                return None
            best = np.argmax(np.abs(grown) / np.linalg.norm(x, axis=1) ** degree)
            return Infinity(_STEP * lam, degree, max(gap, spec.eps), x[best] / np.linalg.norm(x[best]))
        lam, y, before = lam * _STEP, grown, gap
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
    side, tilt = np.ones(d), np.full(d, _TILT)
    tilt[0] = 0.0
    A, y = np.empty((d, d)), np.zeros(d)
    todo, phase = np.arange(d), "values"
    for attempt in range(2 * REPAIRS):
        rows = np.cos(tilt[todo])[:, None] * n + (side * np.sin(tilt))[todo, None] * frame[todo]
        rows = on_grid(rows, 2.0, spec.dtype)
        answers = yield halved(rows, infinity.length, phase)
        better = np.abs(answers) > np.abs(y[todo])
        A[todo[better]], y[todo[better]] = rows[better], answers[better]
        todo = np.flatnonzero(np.abs(y) < LARGE * abs(y[0]))
        if not len(todo):
            break
        phase, side[todo] = "repair", -side[todo]
        if attempt % 2:
            tilt[todo] *= 0.75
    if np.abs(y).min() < USABLE * abs(y[0]) or y[0] == 0:
        raise NotIdentifiable(
            f"the network behind attention nearly vanishes along {int((np.abs(y) < USABLE * abs(y[0])).sum())} of {d} "
            "directions around its largest one; scores cannot be read there. Try another seed."
        )
    return A, y * 2.0**infinity.degree
