"""Heads told apart, whatever their scores: tokens that write nothing change the weight of the one that does.

Theory: docs/theory/attention-layer.md, "Layers of language models", heads apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.sum_table import separate


class CrowdedError(ModelMismatch):
    """More heads than dimensions of tokens that write nothing."""


@dataclass(frozen=True, eq=False)
class Apart:
    """columns (outputs, H): P_h x under the empty query token q; cells (C, 2, d) pairs of empty tokens before x;
    sums (H, C): 1/alpha_h of x in each cell; rise: by how much noise rises to sums - 1, which scores are read by."""

    q: Array
    x: Array
    columns: Array
    cells: Array
    sums: Array
    rise: float

    @property
    def heads(self) -> int:
        return self.columns.shape[1]


def respond(scene: Scene, cells: Array, x: Array, q: Array, phase: str) -> Asking[Array]:
    """Answers (C, outputs) to [n'_c, n_c, x, q] for the pairs `cells` (C, 2, d)."""
    last = np.broadcast_to(np.stack([x, q]), (len(cells), 2, scene.dim))
    y, _ = yield from scene.ask(np.concatenate([cells, last], axis=1), phase)
    return y


def tell_apart(scene: Scene, rng: np.random.Generator, *, rough: bool = False) -> Asking[Apart]:
    """Draw q, x and a table of empty tokens; about 5 H queries, and as many again where a head is nearly saturated.
    Where heads may be `rough`, as for a diagnosis, a poorer table will do."""
    best, drawn, most = None, 0, ROTARY.rough_rise if rough else ROTARY.table_rise
    for attempt in range(ROTARY.tries):
        phase = "main" if attempt == 0 else "repair"
        table = yield from _table(scene, rng, phase, ROTARY.shorter_again**attempt)
        found = yield from _separated(scene, table, rng, phase)
        if found is None:
            continue
        best, drawn = found if best is None or found.rise < best.rise else best, drawn + 1
        if not scene.exact or best.rise <= most or drawn == ROTARY.tables:
            break
    if best is not None:
        return best
    raise ModelMismatch(
        f"in {ROTARY.tries} draws the answers did not fall apart into heads whose softmax denominators add up token by "
        "token: scores so strong that one token has all the weight however short the query token is (as norms of "
        "queries leave them), more than softmax attention (gates, another kernel), two heads with the same scores, or "
        "answers noisier than their digits."
    )


@dataclass(frozen=True, eq=False)
class _Table:
    q: Array
    x: Array
    sides: tuple[Array, Array]
    answers: dict[tuple[int, int], Array]
    rank: int

    def cell(self, j: int, i: int) -> Array:
        return np.stack([self.sides[0][j], self.sides[1][i]])


def _table(scene: Scene, rng: np.random.Generator, phase: str, length: float) -> Asking[_Table]:
    """Cells until their answers show their rank H with some to spare; q is shortened until no head is saturated, and
    again while heads are missing: what they write of x together is that of the heads that show."""
    q, x = length * scene.draw(scene.empty, CORE.edge, rng), scene.draw(scene.written, CORE.edge, rng)
    sides = [scene.draw(scene.empty, ROTARY.empty_length, rng, ROTARY.empty_side) for _ in range(2)]
    first = [np.stack([sides[0][j], sides[1][j]]) for j in (0, 1)]
    q, phase, asked = yield from _unsaturated(scene, first, x, q, phase)
    for again in range(ROTARY.missing_heads + 1):
        table = yield from _ranked(scene, q, x, (sides[0], sides[1]), asked, rng, phase)
        basis = svd(np.array(list(table.answers.values())), full_matrices=False)[2][: table.rank]
        whole = scene.M @ x
        missing = np.linalg.norm(whole - whole @ basis.T @ basis) > ROTARY.missing_part * np.linalg.norm(whole)
        if not missing or again == ROTARY.missing_heads:
            break
        q, phase, asked = CORE.shortened**3 * q, "repair", {}
    return table


def _unsaturated(
    scene: Scene, cells: list[Array], x: Array, q: Array, phase: str
) -> Asking[tuple[Array, str, dict[tuple[int, int], Array]]]:
    """The query token, as short as it takes for weights that are not too uneven, and the answers of the diagonal cells
    before it. Where its length does not count, as beside a strong bias of queries, it stays."""
    even, asked = scene.M @ x / 4, dict[tuple[int, int], Array]()
    last: Array | None = None
    for _ in range(ROTARY.most_shortenings):
        asked = {}
        for j, cell in enumerate(cells):
            (asked[(j, j)],) = yield from respond(scene, cell[None], x, q, phase)
            uneven = np.linalg.norm(asked[(j, j)] - even) >= ROTARY.uneven * np.linalg.norm(even)
            if uneven and not scene.sinks:
                break
        if scene.sinks or not uneven:
            break
        if last is not None and np.linalg.norm(asked[(0, 0)] - last) < ROTARY.same_weight * np.linalg.norm(last):
            break
        last = asked[(0, 0)]
        q, phase = CORE.shortened * q, "repair"
    return q, phase, asked


def _ranked(
    scene: Scene,
    q: Array,
    x: Array,
    sides: tuple[Array, Array],
    asked: dict[tuple[int, int], Array],
    rng: np.random.Generator,
    phase: str,
) -> Asking[_Table]:
    """Cells until their rank shows, beside those `asked`."""
    front, back = sides
    while True:
        new = [(j, i) for j in range(len(front)) for i in range(len(back)) if (j, i) not in asked]
        if new:
            cells = np.stack([np.stack([front[j], back[i]]) for j, i in new])
            asked |= dict(zip(new, (yield from respond(scene, cells, x, q, phase)), strict=True))
        s = np.linalg.svd(np.array([asked[k] for k in sorted(asked)]), compute_uv=False)
        H = int((s > max(1e-10, 100 * scene.noise) * s[0]).sum())
        if len(asked) >= H + len(front) + len(back) + 3 and len(asked) - 2 > H:
            return _Table(q, x, (front, back), asked, H)
        if len(asked) > 4 * len(scene.M) + 64:
            raise ModelMismatch("the answers to one writing token have no clear rank: they are noisier than declared.")
        more = scene.draw(scene.empty, ROTARY.empty_length, rng)
        front, back = (front, np.vstack([back, more])) if len(front) > len(back) else (np.vstack([front, more]), back)


def _separated(scene: Scene, table: _Table, rng: np.random.Generator, phase: str) -> Asking[Apart | None]:
    """Two Jacobians along H empty directions, then the sum table."""
    keys, H = sorted(table.answers), table.rank
    Y = np.array([table.answers[k] for k in keys])
    B = svd(Y, full_matrices=False)[2][:H].T
    if len(scene.empty) < H:
        raise CrowdedError(f"{H} heads and {len(scene.empty)} dimensions of tokens that write nothing: too few.")
    steps = np.linalg.qr(rng.standard_normal((len(scene.empty), H)))[0].T @ scene.empty * scene.radius
    J = []
    for j in (0, 1):
        change = yield from _changes(scene, table, table.cell(j, 0), table.answers[(j, 0)], steps, phase)
        J.append((change @ B).T)
    whole = B.T @ (scene.M @ table.x)
    # Whether a draw serves may hang on last digits, and so does the order of its heads.
    kept = yield from settle_list("table", _fitting(scene, J, B, Y, keys, whole))
    sizes = np.linalg.svd(J[0], compute_uv=False)
    if not kept and sizes[-1] < scene.limits.fewer * sizes[0]:
        J = yield from _beside_many(scene, table, B, steps[:2], rng, phase)
        kept = yield from settle_list("table", _fitting(scene, J, B, Y, keys, whole))
    if not kept:
        return None
    return Apart(table.q, table.x, kept[0], np.stack([table.cell(*k) for k in keys]), kept[1], float(kept[2]))


def _fitting(
    scene: Scene, J: list[Array], B: Array, Y: Array, keys: list[tuple[int, int]], whole: Array
) -> list[Array]:
    """Columns (outputs, H), sums (H, cells) and rise if two Jacobians J lead to a table that fits; else nothing."""
    if np.linalg.norm(whole) == 0 or not all(np.isfinite(part).all() for part in J):
        return []
    found = separate(J[0], J[1], Y @ B, np.array(keys), whole)
    if found is None:
        return []
    # Weights are known as well as answers are, times what the split among heads raises; a fit that stops short of it
    # would have heads write a little of each other.
    rise = np.linalg.norm(found.rows, axis=1).max() * np.linalg.norm(Y, axis=1).max()
    if found.residual > min(
        max(1e-9, ROTARY.table_misfit * scene.noise), ROTARY.table_misfit * scene.noise * float(rise)
    ):
        return []
    return [B @ np.linalg.inv(found.rows), found.sums, np.asarray(found.rise)]


def _changes(scene: Scene, table: _Table, cell: Array, answer: Array, steps: Array, phase: str) -> Asking[Array]:
    """Derivatives (n, outputs) of the answer of a cell (2, d) as its second token moves along steps (n, d)."""
    h, ends = (ROTARY.step, [1.0]) if scene.exact else (ROTARY.wide_step, [1.0, -1.0])
    start = cell[1] if scene.exact else 0.95 * cell[1]
    cells = [np.stack([cell[0], start + sign * h * step]) for sign in ends for step in steps]
    y = yield from respond(scene, np.stack(cells), table.x, table.q, phase)
    n = len(steps)
    return (y - answer) / h if scene.exact else (y[:n] - y[n:]) / (2 * h)


def _beside_many(
    scene: Scene, table: _Table, B: Array, steps: Array, rng: np.random.Generator, phase: str
) -> Asking[list[Array]]:
    """Derivatives (H, n) along two directions each beside n different tokens, one more than heads: where more heads
    share keys than keys have dimensions, H directions show fewer than H."""
    front = table.sides[0]
    more = scene.draw(scene.empty, ROTARY.empty_length, rng, max(B.shape[1] + 1 - len(front), 1))
    cells = np.stack([np.stack([n, table.sides[1][0]]) for n in np.vstack([front, more])])
    new = yield from respond(scene, cells[len(front) :], table.x, table.q, phase)
    answers = np.vstack([[table.answers[(j, 0)] for j in range(len(front))], new])
    found = []
    for cell, answer in zip(cells, answers, strict=True):
        change = yield from _changes(scene, table, cell, answer, steps, phase)
        found.append(change @ B)
    return [np.stack([change[k] for change in found], axis=1) for k in (0, 1)]
