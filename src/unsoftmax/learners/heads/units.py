"""All heads at one query token: sum_h (z.v_h) sigma(z.w_h - log k) with w_h = W_h b0, a small nonlinear fit.

H grows until nothing is left. In many dimensions random starts fail, so the fit begins in a few and every further one
adds two unknowns per head to what is known already.

Theory: docs/theory/multi-head.md, "Generic heads", bounded tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.law import require_copies
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.learners.heads.records import Records
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.sigmoid_units import SMALL, Units, extend_units, fit_units


@dataclass(frozen=True, eq=False)
class Room:
    """How long tokens and sequences may be: `radius` of x, `longest` sequence, and the noise of an answer."""

    radius: float
    longest: int
    noise: float


@dataclass(frozen=True, eq=False)
class Fitting:
    """What the steps of a fit share: ground and room, the number of heads if it is given, everything asked, and rng."""

    ground: Ground
    room: Room
    heads: int | None
    records: Records
    rng: np.random.Generator


class _Unbent(ModelMismatch):
    """Answers at a query token are not explained, and no score bends there: a shorter one would say less."""


def fit_values(fitting: Fitting, counted: int | None = None) -> Asking[tuple[Array, Units]]:
    """A query token b0 (d,) and what all heads show at it, W b0 and v; `counted`: the most heads there can be."""
    b0 = yield from _query_token(fitting)
    if np.isinf(fitting.ground.spec.domain.norm_limit):
        # Only bounded tokens need it as long as can be.
        b0 = b0 / 4
    for attempt in range(FITS.query_tokens):
        try:
            return b0, (yield from read_units(fitting, b0, counted))
        except _Unbent as error:
            raise ModelMismatch(error.reason) from error
        except ModelMismatch as error:
            if error.code is Code.LAW or attempt == FITS.query_tokens - 1:
                raise
            b0 = b0 / 4
    raise AssertionError


def _query_token(fitting: Fitting) -> Asking[Array]:
    """b0 (d,), as long as the room allows while attention still answers in proportion to it."""
    ground, room, rng = fitting.ground, fitting.room, fitting.rng
    direction = sphere(rng, (1, ground.dim))[0]
    x = sphere(rng, (CORE.entries_for_scale, ground.dim)) * room.radius
    length, before, falling = room.radius, np.inf, False
    nothing = max(
        1e2 * room.noise, FITS.rounded_attention * ground.spec.eps * room.radius * float(np.linalg.norm(ground.V))
    )
    for _ in range(60):
        b = np.broadcast_to(direction * length, x.shape)
        y = yield from fitting.records.ask(np.stack([x, b], axis=1), None, "pilot")
        # What attention adds to the mean of the two tokens: proportional to b until it saturates.
        apart = np.maximum(np.linalg.norm(x - b, axis=1), 1e-6 * room.radius)
        tilt = float(np.linalg.norm((y - (x + b) @ ground.V / 2) / apart)) * room.radius
        if tilt <= nothing:
            return direction * (room.radius if before == np.inf else length * 4)
        # Heads that are saturated and cancel may fall once by accident, not twice.
        if before > 2.2 * tilt and falling:
            return direction * length * 16
        falling = before < np.inf and before > 2.2 * tilt
        before, length = tilt, length / 4
    raise ModelMismatch("attention stays saturated however short the query token is; no softmax head does that.")


def read_units(fitting: Fitting, b0: Array, counted: int | None = None) -> Asking[Units]:
    """w = W b0 and v of all heads: H = 1, 2, ... until the answers at b0 are explained."""
    d, heads, rng = fitting.ground.dim, fitting.heads, fitting.rng
    few = d if d <= FITS.small_dimensions else FITS.first_dimensions
    # The query token lies in the first dimensions, so that z = x - b0 does too.
    Q = np.linalg.qr(np.column_stack([b0, rng.standard_normal((d, d - 1))]))[0]
    seen = _Seen(fitting, b0)
    first = 1 if heads is None else max(heads, 1)
    # Some more than there are find their way where as many do not, and are pruned.
    most = FITS.most_heads if counted is None else max(min(counted + FITS.more_heads, FITS.most_heads), first)
    left: list[float] = []
    logit, taken = 1.0, 0
    for H in range(first, most + 1):
        number = 5 * H * few + 20 - len(seen.F)
        yield from seen.ask(sphere(rng, (number, few)) @ Q[:, :few].T)
        tolerance = seen.tolerance
        if np.sqrt(np.mean(seen.F**2)) <= tolerance:
            return Units(np.zeros((0, d)), np.zeros((0, d)), 0.0)
        starts = 3 if H == 1 else FITS.starts
        z, left_steps = seen.z @ Q[:, :few], FITS.patient_steps - taken
        found = fit_units(z, seen.shift, seen.F, H, tolerance, rng, starts=starts, logit=logit, patience=left_steps)
        taken += found.steps
        if found.rms <= tolerance:
            found = _pruned(z, seen.shift, seen.F, found, tolerance, rng, logit)
            if counted is not None and len(found.v) > counted:
                raise ModelMismatch(
                    f"only {len(found.v)} heads explain the answers at one query token where at most {counted} turn; "
                    "the target is outside the class, or two of its heads are too alike to be told apart."
                )
            return (yield from _extended(seen, Q, found))
        left.append(found.rms)
        if H == 1 and not np.isinf(fitting.ground.spec.domain.norm_limit):
            logit = float(np.sqrt(np.mean((z @ found.w.T) ** 2)))
        if len(left) == FITS.failed_before_law:
            yield from _require_copies(seen)
        if len(left) > FITS.floor_heads and found.rms > FITS.no_less * left[-1 - FITS.floor_heads]:
            break
    raise (ModelMismatch if logit >= SMALL else _Unbent)(
        f"up to {H} heads do not explain the answers at one query token (left: {found.rms:.1g}, allowed "
        f"{tolerance:.1g}); the target is outside the class, noisier than declared, or has more heads."
    )


def _require_copies(seen: _Seen) -> Asking[None]:
    """Refuse weights that hang on the length of the sequence, at the first pair of all: no number of heads explains
    them. Two queries, two more for why."""
    ground, b0 = seen.fitting.ground, seen.b0
    pair = np.stack([b0 + seen.z[0], b0])[None]
    least, limit = np.abs(pair @ ground.V).max(axis=1), ground.spec.domain.length_limit
    yield from require_copies(pair, limit, least, CORE.felt * ground.noise, 2 * seen.fitting.room.noise, "discovery")


def read_shorter(fitting: Fitting, b0: Array) -> Asking[Units]:
    """The same at a shorter query token; what no score bends there is another class."""
    try:
        return (yield from read_units(fitting, b0))
    except _Unbent as error:
        raise ModelMismatch(error.reason) from error


@dataclass(eq=False)
class _Seen:
    """Pairs [x ; b0] asked so far: z = x - b0 (n, d), shift = log k (n,), F (n,)."""

    fitting: Fitting
    b0: Array

    def __post_init__(self) -> None:
        self.z, self.shift, self.F = np.zeros((0, len(self.b0))), np.zeros(0), np.zeros(0)

    @property
    def tolerance(self) -> float:
        """What a fit may leave, root mean square."""
        return max(2 * self.fitting.room.noise, FITS.explained * float(np.abs(self.F).max()))

    def ask(self, directions: Array) -> Asking[None]:
        """x along the unit vectors (n, d), up to the radius long, with random numbers of copies."""
        number, room, rng = len(directions), self.fitting.room, self.fitting.rng
        x = directions * (room.radius * rng.uniform(0.5, 1.0, (number, 1)))
        many = rng.integers(1, room.longest, number)
        one = np.ones_like(many)
        copies = np.where(rng.random((number, 1)) < 0.5, np.stack([many, one], 1), np.stack([one, many], 1))
        pairs = np.stack([x, np.broadcast_to(self.b0, x.shape)], axis=1)
        y = yield from self.fitting.records.ask(pairs, copies, "discovery")
        self.z = np.vstack([self.z, x - self.b0])
        self.shift = np.append(self.shift, np.log(copies[:, 1] / copies[:, 0]))
        self.F = np.append(self.F, y - self.b0 @ self.fitting.ground.V)


def _extended(seen: _Seen, Q: Array, units: Units) -> Asking[Units]:
    """Units in all dimensions from those in the first columns of Q (d, d): 6 H queries per further column."""
    d, few = len(Q), units.w.shape[1]
    H, rng = len(units.v), seen.fitting.rng
    if few < d:
        first, number = len(seen.F), 6 * H
        lean = 10 ** rng.uniform(-1.3, -0.1, (number * (d - few), 1)) * rng.choice([-1.0, 1.0], (number * (d - few), 1))
        inside = sphere(rng, (len(lean), few)) @ Q[:, :few].T
        outside = np.repeat(Q[:, few:].T, number, axis=0)
        yield from seen.ask(np.sqrt(1 - lean**2) * inside + lean * outside)
        w, v = (np.hstack([part, np.zeros((H, d - few))]) for part in (units.w, units.v))
        for j in range(few, d):
            rows = slice(first + (j - few) * number, first + (j - few + 1) * number)
            z = seen.z[rows] @ Q
            w[:, j], v[:, j] = extend_units(z[:, :few], z[:, j], seen.shift[rows], seen.F[rows], units, rng)
        units = fit_units(seen.z @ Q, seen.shift, seen.F, H, FITS.last_share * seen.tolerance, rng, starts=1, first=w)
        if units.rms > seen.tolerance:
            raise ModelMismatch(
                f"{H} heads explain the answers in {few} dimensions but not in all (left: {units.rms:.1g}, allowed "
                f"{seen.tolerance:.1g}); the target is outside the class, or noisier than declared."
            )
    return Units(units.w @ Q.T, units.v @ Q.T, units.rms)


def _pruned(
    z: Array, shift: Array, F: Array, units: Units, tolerance: float, rng: np.random.Generator, logit: float
) -> Units:
    """The same without heads that the fit does not need."""
    while len(units.v) > 1:
        for h in np.argsort(np.linalg.norm(units.v, axis=1), kind="stable"):
            first = np.delete(units.w, h, axis=0)
            fewer = fit_units(z, shift, F, len(first), tolerance, rng, starts=1, first=first, logit=logit)
            if fewer.rms <= tolerance:
                units = fewer
                break
        else:
            break
    return units


def closest(w: Array) -> float:
    """Smallest difference between two rows of w (H, d), relative to the longer of them; inf for less than two."""
    sizes = np.linalg.norm(w, axis=1)
    gaps = np.linalg.norm(w[:, None] - w[None], axis=2) / np.maximum(np.maximum.outer(sizes, sizes), 1e-300)
    return float(gaps[np.triu_indices(len(w), 1)].min(initial=np.inf))
