"""Heads without saturation: short tokens and short sequences, or heads that saturation cannot tell apart.

What all heads show at one query token gives their values (units.py); then isolation by the values, then three-token
queries and a joint fit of everything that was asked.

Theory: docs/theory/multi-head.md, "Generic heads", bounded tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import logits
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.readable import Repair, until_readable
from unsoftmax.learners.heads.circle import Entangled
from unsoftmax.learners.heads.constants import HEADS
from unsoftmax.learners.heads.constants_fits import FITS
from unsoftmax.learners.heads.ground import require_no_order
from unsoftmax.learners.heads.isolation import independence, isolate
from unsoftmax.learners.heads.units import Fitting, Room, closest, fit_values, read_shorter
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.heads_fit import Data, gauss_newton, left_over, levenberg
from unsoftmax.solvers.sigmoid_units import SMALL, Units

_REPAIR = Repair(readable=4.0, far=0.4, tries=8)
"""Entries beyond |t| = 4, a share of 2 %, are asked again with a shorter query token: 0.4^7 = 1/600 in the end, and
what saturates even then is left to the fit of everything."""


def fit_heads(fitting: Fitting) -> Asking[tuple[Array, Array]]:
    """W (H, d, d), v (H, d) from queries inside the room; all of them are kept as records."""
    b0, units = yield from fit_values(fitting)
    return (yield from fit_scores(fitting, b0, units))


def fit_entangled(fitting: Fitting, error: Entangled) -> Asking[tuple[Array, Array]]:
    """W, v where saturation does not part the heads: all fitted together."""
    ground = fitting.ground
    yield from require_no_order(ground, 2 * fitting.room.radius, fitting.rng)
    b0, units = yield from fit_values(fitting, None if error.heads is None else error.heads + 1)
    if (apart := closest(units.w)) < FITS.alike:
        raise ModelMismatch(
            f"two heads score alike (their W b differ by {apart:.1g} of their size): W closer to each other than "
            f"about {FITS.alike:g} are told apart neither by saturation nor by a fit."
        ) from error
    if theory.multi_head_unknowns(ground.dim, len(units.v)) > FITS.largest_fit:
        raise ModelMismatch(
            f"{error}, and {len(units.v)} heads in {ground.dim} dimensions have too many unknowns to be fitted "
            f"together (more than {FITS.largest_fit})."
        ) from error
    return (yield from fit_scores(fitting, b0, units, patient=not error.tried))


def fit_scores(fitting: Fitting, b0: Array, units: Units, patient: bool = True) -> Asking[tuple[Array, Array]]:
    """W (H, d, d), v (H, d) from what is seen at b0; a fit that does not arrive starts again at a shorter b0."""
    # Shorter query tokens and many starts are for heads that are saturated.
    small = _is_small(fitting, units)
    attempts = FITS.query_tokens if patient and not small else 1
    for attempt in range(attempts):
        if len(units.v) == 0:
            break
        faint = _is_faint(fitting, b0, units, small)
        try:
            W, unseen = yield from _isolated(fitting, b0, units)
            starts, last = None if patient and not small else FITS.last_starts, attempt == attempts - 1 and not faint
            return (yield from _joint(fitting, W, units.v, b0, unseen, starts, last))
        except ModelMismatch as error:
            if faint:
                beside = f" beside noise of {fitting.room.noise:.2g}" if fitting.room.noise else ""
                raise NotIdentifiable(
                    f"the target's scores are too small{beside} to tell its heads from each other, so the answers do "
                    "not determine its weights: to first order they show the sum of v_h W_h alone, and "
                    f"{len(units.v)} heads that one query token shows do not fit elsewhere. "
                    "Allow longer tokens (max_norm).",
                    code=Code.UNDETERMINED,
                ) from error
            if attempt == attempts - 1:
                raise
            b0 = b0 / 4
            units = yield from read_shorter(fitting, b0)
    return np.zeros((0, len(b0), len(b0))), np.zeros((0, len(b0)))


def _is_small(fitting: Fitting, units: Units) -> bool:
    """Whether a norm limit leaves no token a score that bends, by what `units` tell at the query token."""
    if np.isinf(fitting.ground.spec.domain.norm_limit):
        return False
    reach = fitting.room.radius * np.linalg.norm(units.w, axis=1) / np.sqrt(units.w.shape[1])
    return bool(reach.max(initial=0.0) < SMALL)


def _is_faint(fitting: Fitting, b0: Array, units: Units, small: bool) -> bool:
    """Whether even the longest tokens below a norm limit have scores that tell no heads apart, by what b0 shows.

    Scores below `FITS.faint` do not beside rounding, and beside noise none that are small: what tells heads apart is
    their square, and a fit within the noise may do with fewer heads than there are, or with others.
    """
    limit = fitting.ground.spec.domain.norm_limit
    if np.isinf(limit):
        return False
    sizes, scores = (np.linalg.norm(part, axis=1) for part in (units.v, units.w))
    typical = float(sizes @ scores) / max(float(sizes.sum()), 1e-300)
    score = limit**2 * typical / (float(np.linalg.norm(b0)) * np.sqrt(len(b0)))
    return score < FITS.faint or (small and fitting.room.noise > 0)


def _isolated(fitting: Fitting, b0: Array, units: Units) -> Asking[tuple[Array, Array]]:
    """W (H, d, d): exact along free directions, elsewhere what w = W b0 tells; projectors (H, d, d) on elsewhere."""
    d = len(b0)
    base = np.linalg.qr(np.column_stack([b0, fitting.rng.standard_normal((d, d - 1))]))[0].T
    longest = float(np.linalg.norm(b0))
    W = np.zeros((len(units.v), d, d))
    unseen = np.tile(np.eye(d), (len(units.v), 1, 1))
    for h, (w, v) in enumerate(zip(units.w, units.v, strict=True)):
        others = np.delete(units.v, h, axis=0)
        if len(others) >= d or independence(np.vstack([v, others])) < HEADS.dependent:
            W[h] = np.outer(w, b0) / longest**2
            continue
        head = isolate(v, others)
        reach = fitting.room.radius / np.sqrt(2)
        length = min(
            reach, FITS.isolated_logit * np.sqrt(d) * longest / (reach * max(float(np.linalg.norm(w)), 1e-300))
        )
        T = yield from _entries(fitting, head.free, v, base, length)
        bound = np.outer(head.bound @ w, b0) / longest**2
        basis = np.vstack([head.bound, head.free])
        W[h] = np.linalg.solve(basis, np.vstack([bound, T @ base]))
        unseen[h] = head.bound.T @ head.bound
    return W, unseen


def _entries(fitting: Fitting, rows: Array, v: Array, base: Array, length: float) -> Asking[Array]:
    """row'W base' (p, d) for rows that see one head of value v; columns of length `length`, shorter if saturated."""
    n = len(base)
    spans = np.empty(len(rows) * n)

    def ask(index: Array, size: Array, phase: str) -> Asking[Array]:
        z, b = rows[index // n], base[index % n] * size[:, None]
        along = np.einsum("nd,nd->n", z, b)
        turn = np.where(along > 0, -1.0, 1.0)
        # As long as z + b may be: z and b point apart.
        far = np.abs(along) + np.sqrt(along**2 + fitting.room.radius**2 - size**2)
        z = z * (turn * far * (1 - 1e-9))[:, None]
        y = yield from fitting.records.ask(np.stack([z + b, b], axis=1), None, phase)
        spans[index] = turn * far * size
        return logits(y, z @ v, b @ fitting.ground.V).t

    t, left = yield from until_readable(ask, np.full(len(spans), length), _REPAIR)
    t[left] = 0.0
    return (t / spans).reshape(len(rows), n)


def _joint(
    fitting: Fitting, W: Array, v: Array, b0: Array, unseen: Array, starts: int | None, last: bool
) -> Asking[tuple[Array, Array]]:
    """Random three-token queries for what isolation cannot see, then one fit of everything, from some `starts`.

    Where it is the `last` one, noise may be why it does not arrive.
    """
    (H, d), room, rng = v.shape, fitting.room, fitting.rng
    entries = round(float(np.trace(unseen, axis1=1, axis2=2).sum())) * d
    # Rounding of rough models is overstated a little, so that the fit is not led by its own last digits.
    noise = max(0.6 * room.noise, 1e-12 * room.radius * float(np.linalg.norm(v, axis=1).max()))
    for _ in range(FITS.rounds):
        number = int(1.5 * entries) + 20
        tokens = three_tokens(room, float(np.linalg.norm(b0)), number, d, rng)
        copies = rng.integers(1, 3, (number, 3)) if room.longest >= 6 else None
        yield from fitting.records.ask(tokens, copies, "main")
        data = fitting.records.data()
        for start in islice(_starts(W, b0, unseen, rng), starts):
            found = levenberg(start, v, data, noise)
            ended = _finished(found[0], found[1], data, 0.6 * room.noise)
            if min(found[2], left_over(*ended, data, noise)) < 3:
                return ended
    seen = f"{H} heads explain the answers at one query token but not elsewhere (left: {found[2]:.2g} times the noise)"
    gap = found[2] * noise / (room.radius * float(np.linalg.norm(v, axis=1).max()))
    if last and room.noise > 0 and gap < FITS.hidden_by_noise:
        raise NotIdentifiable(
            f"{seen}, {gap:.1g} of what a token is answered: beside noise of {room.noise:.2g} heads that score alike "
            "at one query token are not told from fewer, so the answers do not determine how many there are; a target "
            "that is no sum of heads may look so too",
            advice="ask for answers with less noise, or allow longer tokens (max_norm).",
            code=Code.UNDETERMINED,
        )
    raise ModelMismatch(f"{seen}: no start of the fit arrived, or the target is outside the class.")


def _finished(W: Array, v: Array, data: Data, noise: float) -> tuple[Array, Array]:
    """The last digits, from a fit that left little: whole steps, the best of which counts.

    Where scores are small the valley of a fit is narrow, and damped steps end on its side. Whole ones go up once or
    twice before they arrive.
    """
    if W.size + v.size > FITS.finished:
        return levenberg(W, v, data, noise, 30, 1e-9)[:2]
    best, least = (W, v), left_over(W, v, data, noise)
    for _ in range(FITS.last_steps):
        W, v = gauss_newton(W, v, data, noise, 1)
        left = left_over(W, v, data, noise)
        if left < least:
            best, least = (W, v), left
        if not left > FITS.at_rest:
            break
    return best


def _starts(W: Array, b0: Array, unseen: Array, rng: np.random.Generator) -> Iterator[Array]:
    """W as it is, nothing, then random completions of what isolation and b0 have not shown: more of them for few."""
    yield W
    yield 0 * W
    length = float(np.linalg.norm(b0))
    across = np.eye(len(b0)) - np.outer(b0, b0) / length**2
    size = np.linalg.norm(W @ b0, axis=1)[:, None, None] / (length * np.sqrt(len(b0)))
    for _ in range(min(FITS.completions, FITS.completion_entries // W.size)):
        yield W + unseen @ (size * rng.standard_normal(W.shape)) @ across


def three_tokens(room: Room, length: float, number: int, d: int, rng: np.random.Generator) -> Array:
    """Random sequences (number, 3, d): two tokens up to the radius, a query token up to `length`."""
    x = sphere(rng, (number, 2, d)) * (room.radius * rng.uniform(0.5, 1.0, (number, 2, 1)))
    b = sphere(rng, (number, 1, d)) * (length * rng.uniform(0.3, 1.0, (number, 1, 1)))
    return np.concatenate([x, b], axis=1)
