"""All heads off is a corner where nothing answers; leaving it, the first head that turns on answers alone.

Directions orthogonal to the key directions found so far do not meet their heads again, so faces are found one by one
until nothing turns on any more: H is found.

Theory: docs/theory/multi-head.md, "Several heads behind a network", corner.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.behind.far import Far
from unsoftmax.learners.behind.infinity import find_infinity
from unsoftmax.learners.behind.rays import REPAIR
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import Repair, until_readable
from unsoftmax.learners.core.settling import settle
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec


class Misled(ModelMismatch):
    """What was found from one corner does not hold together; another corner may do better."""


def find_far(spec: OracleSpec, rng: np.random.Generator) -> Asking[Far]:
    """Where the network is homogeneous, and how large its answers are there."""
    infinity = yield from find_infinity(spec, rng)
    far = Far(spec, infinity.length * 2.0**20, infinity.degree, infinity.noise, 1.0)
    a = sphere(rng, (8, spec.dim))
    y = yield from far.ask(a, np.zeros(spec.dim), phase="pilot")
    return Far(spec, far.length, far.degree, far.noise, 2.0**far.degree * float(np.sqrt(np.mean(y**2))))


def saturating_query(far: Far, rng: np.random.Generator) -> Asking[Array]:
    """b0 (d,) so long that along random unit a every head is on or off, ten times over."""
    d = far.spec.dim
    direction, size = sphere(rng, (1, d))[0], 1.0
    for _ in range(30):
        a = sphere(rng, (4, d))
        one = yield from far.ask(a, size * direction, phase="pilot")
        two = yield from far.ask(a, size * direction, (1, 2), phase="pilot")
        if np.abs(one - two).max() <= 1e3 * far.noise * far.scale:
            return 10 * size * direction
        size *= 3
    raise ModelMismatch("some head stays undecided however long the query token is: its W is 0 or nearly so.")


def find_corner(far: Far, b0: Array, rng: np.random.Generator) -> Asking[Array]:
    """A unit direction a (d,) at which all heads are off; one in 2^H random ones is."""
    for _ in range(BEHIND.most_directions // BEHIND.directions_at_once):
        a = sphere(rng, (BEHIND.directions_at_once, far.spec.dim))
        y = yield from far.ask(a, b0, phase="discovery")
        for i in np.flatnonzero(far.silent(y, a)):
            if (yield from _all_off(far, a[i], b0)):
                return np.asarray(a[i])
    raise ModelMismatch(
        f"no direction among {BEHIND.most_directions} leaves all heads off; there are more than ten heads, one with W "
        "= 0, or none."
    )


def _all_off(far: Far, a: Array, b0: Array) -> Asking[bool]:
    """Is it silent at a because all heads are off, not the network? Then all are on at -b0, and half on at b = 0."""
    half = yield from far.ask(a[None], 0 * b0, phase="discovery")
    whole = yield from far.ask(a[None], -b0, phase="discovery")
    loud = abs(float(half[0])) > BEHIND.usable_row * far.scale
    return loud and abs(float(whole[0] / half[0]) / 2**far.degree - 1) < BEHIND.usable_row


def find_faces(far: Far, b0: Array, corner: Array, rng: np.random.Generator) -> Asking[Array]:
    """Key directions w_h = W_h b0 of all heads, (H, d)."""
    d = far.spec.dim
    w: list[Array] = []
    misses = 0
    while misses < BEHIND.misses_in_a_row and len(w) < d:
        away = rng.standard_normal(d)
        if w:
            Q = np.linalg.qr(np.array(w).T)[0]
            away -= Q @ (Q.T @ away)
            away -= Q @ (Q.T @ away)
        away /= np.linalg.norm(away)
        ends = corner + BEHIND.reach_over_corner * np.array([[1.0], [-1.0]]) * away
        y = yield from far.ask(ends, b0, phase="discovery")
        loud = np.flatnonzero(np.abs(y) > HALF_DIGITS * far.scale * BEHIND.reach_over_corner**far.degree)
        if len(loud) == 0:
            misses += 1
            continue
        misses = 0
        point, t = yield from _transition(far, b0, corner, away * (1.0 if loud[0] == 0 else -1.0))
        yield from _require_one(far, b0, point, t)
        # Differences over small steps: the next faces and all rows follow from them.
        (slopes,) = yield from settle("key direction", (yield from _slopes(far, b0, point, t, rng)))
        w.append(slopes)
    if not w:
        raise Misled("no head turned on when all were off")
    return np.array(w).reshape(-1, d)


def _transition(far: Far, b0: Array, corner: Array, away: Array) -> Asking[tuple[Array, float]]:
    """A point where the first head met along `away` is undecided, |t| < 3, and its t."""
    low, high = 0.0, BEHIND.reach_over_corner
    for _ in range(120):
        middle = float(np.sqrt(max(low, 1e-3) * high)) if high > 4 * max(low, 1e-3) else (low + high) / 2
        a = corner + middle * away
        t, y = yield from far.one_head(a[None], b0, phase="discovery")
        if far.silent(y, a, 1e6)[0]:
            low = middle
        elif np.isfinite(t[0]) and abs(t[0]) < 3:
            return a, float(t[0])
        elif np.isfinite(t[0]) and t[0] < 0:
            low = middle
        else:
            high = middle
    raise Misled("a head could not be caught while turning on")


def _require_one(far: Far, b0: Array, point: Array, t: float) -> Asking[None]:
    """1 and 4 copies told t; 16 must agree, or more than one head turns here."""
    one = yield from far.ask(point[None], b0, phase="discovery")
    many = yield from far.ask(point[None], b0, (1, 16), phase="discovery")
    wanted = (expit(t - np.log(16.0)) / expit(t)) ** far.degree
    rounding = CORE.felt * far.noise * far.scale / abs(float(one[0]))
    if not abs(float(many[0] / one[0]) - wanted) <= BEHIND.gap_of_one_head_alone * wanted + rounding:
        raise Misled("more than one head turned at once")


def _slopes(far: Far, b0: Array, point: Array, t0: float, rng: np.random.Generator) -> Asking[Array]:
    """W_h b0 from d small steps around the transition."""
    d = far.spec.dim
    E = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    step = np.full(d, 1.0 / float(np.linalg.norm(b0)))

    def ask(index: Array, length: Array, phase: str) -> Asking[Array]:
        t, _ = yield from far.one_head(point + length[:, None] * E[index], b0, phase="discovery")
        return t

    t, left = yield from until_readable(ask, step, Repair(REPAIR.readable, far=1 / 5))
    slope = (t - t0) / step
    if len(left) or not slope.any():
        raise Misled("a head's transition was sharper than the number format can resolve")
    return np.asarray(E.T @ slope)
