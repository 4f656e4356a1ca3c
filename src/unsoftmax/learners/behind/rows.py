"""All W_h behind an unknown network: corner, faces, then every matrix with the others held off.

Where z'W_g b is far below 0 for the other heads g the answer is sigma(z'W_h b)^p c_h(z).

Theory: docs/theory/multi-head.md, "Several heads behind a network", rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import ray_logits
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.behind.corner import Misled, find_corner, find_faces, find_far, saturating_query
from unsoftmax.learners.behind.far import Far
from unsoftmax.learners.behind.rays import REPAIR
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.cross import read_cross
from unsoftmax.learners.core.driver import together
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec


@dataclass(eq=False)
class HeldOff:
    """Entries z_i'W_h b_j of one head: rows Z (d, d) with amplitudes c (d,), columns B (d, d), B_0 = b0."""

    far: Far
    Z: Array
    c: Array
    B: Array
    F: Array
    """Logits (d, d), NaN where not asked."""

    def logits(self) -> Array:
        return self.F

    def read(self, rows: Array, columns: Array) -> Asking[None]:
        """Ask the entries; far logits again with more copies of one token, which shifts them back."""
        phase = "main"
        for copies in BEHIND.copies_of_both_tokens:
            if len(rows) == 0:
                return
            y = yield self._probes(rows, columns, copies, phase)
            t = ray_logits(y / self.far.length**self.far.degree, self.c[rows], self.far.degree)
            good = np.abs(np.nan_to_num(t, nan=np.inf)) <= REPAIR.readable
            self.F[rows[good], columns[good]] = t[good] + np.log(copies[1] / copies[0])
            rows, columns, phase = rows[~good], columns[~good], "repair"
        if len(rows):
            raise Misled(
                f"{len(rows)} answers lay outside what one head in front of a homogeneous network can answer while the "
                "others are held off"
            )

    def _probes(self, rows: Array, columns: Array, copies: tuple[int, int], phase: str) -> LazyProbes:
        def build(start: int, stop: int) -> Probes:
            i, j = rows[start:stop], columns[start:stop]
            counts = None if copies == (1, 1) else np.tile(copies, (len(i), 1))
            return Probes(self.far.tokens(self.Z[i], self.B[j]), counts)

        return LazyProbes(len(rows), 2 * self.far.spec.dim * 8, build, phase)


def read_heads_behind(spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Array, Far, float]]:
    """W (H, d, d), H found, where the network is homogeneous, and the largest relative error of a W."""
    far = yield from find_far(spec, rng)
    b0 = yield from saturating_query(far, rng)
    for attempt in range(BEHIND.corners_tried):
        try:
            corner = yield from find_corner(far, b0, rng)
            w = yield from find_faces(far, b0, corner, rng)
            draws = [np.random.default_rng(seed) for seed in rng.integers(2**63, size=len(w))]
            read = yield from together([read_matrix(far, b0, w, h, own) for h, own in enumerate(draws)])
            break
        except Misled as error:
            # A network of few neurons is also silent where heads are on: such a corner is none.
            if attempt == BEHIND.corners_tried - 1:
                raise ModelMismatch(
                    f"{error} in {BEHIND.corners_tried} attempts: the target is not a sum of heads into a network, "
                    "some heads "
                    "turn together (proportional W), or the network is silent for most tokens (very few neurons)."
                ) from error
    return np.array([W for W, _ in read]), far, max(error for _, error in read)


def read_matrix(far: Far, b0: Array, w: Array, h: int, rng: np.random.Generator) -> Asking[tuple[Array, float]]:
    """W_h (d, d), the other heads (key directions w (H, d) at b0) held off, and its relative error."""
    Z, c = yield from _rows(far, b0, w, h, rng)
    length = yield from _column_length(far, b0, w, h, Z, c, rng)
    d = len(b0)
    frame = np.linalg.qr(np.column_stack([b0, rng.standard_normal((d, d - 1))]))[0].T
    B = b0 + length * frame
    B[0] = b0
    entries = HeldOff(far, Z, c, B, np.full((d, d), np.nan))
    cross = yield from read_cross(entries, far.noise, None)
    T = entries.F
    M = cross.completed(T[:, cross.columns], T[cross.rows])
    W = np.asarray(np.linalg.solve(B, np.linalg.solve(Z, M).T).T)
    return W, _left_by_rounding(entries, W)


def _left_by_rounding(entries: HeldOff, W: Array) -> float:
    """Relative error of W = Z^-1 T B^-T, in quadratic mean, that rounding of scores and of answers leaves in T.

    Fresh pairs do not show all of it: like the rows they must keep the other heads off, and see least where rows did.
    """
    far, Z, B = entries.far, entries.Z, entries.B
    lengths = np.linalg.norm(Z, axis=1)
    scores = far.spec.eps * lengths * np.linalg.norm(W, 2) * np.linalg.norm(B, axis=1).max()
    # A logit errs 1 / (sigma (1 - sigma)) times as much as its answer beside the amplitude: 4 times at the middle.
    answers = 4 * far.noise * far.scale * lengths**far.degree / np.abs(entries.c)
    rows = np.linalg.norm(np.linalg.inv(Z) * np.hypot(scores, answers))
    return float(rows * np.linalg.norm(np.linalg.inv(B)) / max(float(np.linalg.norm(W)), 1e-300))


def _targets(w: Array, h: int) -> Array:
    """Scores at b0: head h near 1, the others off by a margin that grows with how much stronger they are."""
    norms = np.linalg.norm(w, axis=1)
    target = -CORE.no_digit * np.maximum(1.0, 0.5 * norms / norms[h])
    target[h] = 1.0
    return np.asarray(target)


def _rows(far: Far, b0: Array, w: Array, h: int, rng: np.random.Generator) -> Asking[tuple[Array, Array]]:
    """d independent rows at which only head h is on, with large amplitudes c."""
    H, d = w.shape
    if d < H:
        raise NotIdentifiable(
            f"{H} heads in {d} dimensions: no token switches one of them on and the others off, so they are not read "
            "apart."
        )
    dual = np.linalg.pinv(w)
    centre = dual @ _targets(w, h)
    size = float(np.linalg.norm(centre)) if H > 1 else 2 / float(np.linalg.norm(w[h]))
    null = np.linalg.qr(w.T, mode="complete")[0][:, H:].T
    draws = rng.standard_normal((6, len(null))) @ null
    draws = centre + 1.5 * size * draws / np.maximum(np.linalg.norm(draws, axis=1, keepdims=True), 1e-300)
    amplitude = yield from far.ask(draws, BEHIND.query_pushed_by * b0, phase="pilot")
    best = int(np.argmax(np.abs(amplitude) / np.linalg.norm(draws, axis=1) ** far.degree))
    middle, largest = draws[best], abs(float(amplitude[best]))
    steps = [size * p for p in null] + [-size * dual[:, g] / np.linalg.norm(dual[:, g]) for g in range(H) if g != h]
    sides = np.array([1.0] * len(null) + [0.0] * (H - 1))
    Z, c = np.tile(middle, (d, 1)), np.zeros(d)
    Z[-1] = middle + dual[:, h] * 0.8
    reach, turn = np.ones(d - 1), np.ones(d - 1)
    left = np.arange(d - 1)
    for attempt in range(16):
        a = middle + (turn * reach)[left, None] * np.array(steps)[left]
        a = _apart(Z, left, a - np.outer(a @ w[h], dual[:, h]), dual[:, h], rng)
        asked = np.vstack([a, Z[-1:]]) if attempt == 0 else a
        y = yield from far.ask(asked, BEHIND.query_pushed_by * b0, phase="values" if attempt == 0 else "repair")
        if attempt == 0:
            c[-1], y = y[-1], y[:-1]
        better = np.abs(y) > np.abs(c[left])
        Z[left[better]], c[left[better]] = a[better], y[better]
        left = np.flatnonzero(np.abs(c[:-1]) < BEHIND.large_row * largest)
        if len(left) == 0:
            return Z, c
        # The other side where there is one, then closer to the middle.
        turn[left] = np.where(sides[left] > 0, -turn[left], turn[left])
        reach[left] *= np.where((turn[left] > 0) | (sides[left] == 0), 0.6, 1.0)
    if np.abs(c).min() < BEHIND.usable_row * largest:
        raise Misled("the network nearly vanished along too many directions of one head")
    return Z, c


def _apart(Z: Array, left: Array, level: Array, along: Array, rng: np.random.Generator) -> Array:
    """Rows (n, d) at places `left` of Z: `level`, where the head's score is 0, with scores of about 1 by going `along`.

    How the scores of d rows fall decides whether these are independent, and a draw near a dependent one comes as often
    as it is near: the draw whose rows are best told apart is taken.
    """
    draws = level + rng.uniform(0.5, 1.5, (BEHIND.draws_of_row_scores, len(left), 1)) * along
    whole = np.tile(Z, (BEHIND.draws_of_row_scores, 1, 1))
    whole[:, left] = draws
    smallest = np.linalg.svd(whole / np.linalg.norm(whole, axis=2, keepdims=True), compute_uv=False)[:, -1]
    return np.asarray(draws[int(np.argmax(smallest))])


def _column_length(
    far: Far, b0: Array, w: Array, h: int, Z: Array, c: Array, rng: np.random.Generator
) -> Asking[float]:
    """How far b may move from b0: scores of head h change by about 1, the other heads stay off."""
    d = len(b0)

    def look(length: float) -> Asking[float]:
        rows = rng.integers(d, size=CORE.entries_for_scale)
        y = yield from far.ask(Z[rows], b0 + length * sphere(rng, (CORE.entries_for_scale, d)), phase="pilot")
        t = ray_logits(y, c[rows], far.degree)
        readable = (np.abs(np.nan_to_num(t, nan=np.inf)) < 6).all()
        return float(np.sqrt(np.mean((t - Z[rows] @ w[h]) ** 2))) or 1e-300 if readable else SATURATED

    longest = float(np.linalg.norm(b0))
    found = yield from find_scale(look, 0.02 * longest, Steps(shorter=1 / 3, looks=24))
    if found.size == SATURATED:
        raise Misled("no query token near the first kept a head readable")
    length = min(found.wished, longest)
    if len(w) == 1:
        return length
    dual = np.linalg.pinv(w)

    def quiet(length: float) -> Asking[float]:
        rows = rng.integers(d, size=CORE.entries_for_scale)
        off = Z[rows] - 2 * CORE.no_digit * dual[:, h]
        y = yield from far.ask(off, b0 + 2 * length * sphere(rng, (CORE.entries_for_scale, d)), phase="pilot")
        return 1.0 if far.silent(y, off).all() else SATURATED

    found = yield from find_scale(quiet, length, Steps(shorter=CORE.shortened, looks=40))
    if found.size == SATURATED:
        raise Misled("the other heads did not stay off near the query token")
    return found.scale
