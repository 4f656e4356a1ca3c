"""Ranges and value maps behind a LayerNorm: an answer is a direction, and combined moves tell the scales between them.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import announced
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.picks import Picks
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.ranges import Heads, Shared, all_directions, steps, weighed
from unsoftmax.learners.layer.shell import Shell
from unsoftmax.probes.base import Array
from unsoftmax.solvers.mixture import lacking, split_with_identity
from unsoftmax.solvers.projective import scales_of_points
from unsoftmax.solvers.subspace import Range, column_range, floor_for
from unsoftmax.spec import OracleSpec

_SPARE_BITS = 3
"""Derived: moves are combined by eighths, and 1/8 is three bits."""


@dataclass(frozen=True, eq=False)
class Sum:
    """What stands before the LayerNorm, in true units: heads off the mean, M x + b for one token.

    `overlapping`: value maps were read head by head, not off their sum.
    """

    heads: Heads
    M: Array
    b: Array
    flipped: bool
    overlapping: bool = False


def ranges_at(
    picks: Picks,
    shell: Shell,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
    filling: bool = False,
) -> Asking[Sum]:
    """Moves of each picked token with a few combinations of them, from which the scales of the answers follow.

    `filling`: Shared is raised if more heads of the rank found would fill the space.
    """
    H, d = picks.heads, spec.dim

    def drawn(n: int, shorter: float = 1.0) -> Array:
        return steps(n, shorter * picks.reach, spec, picks, rng, _SPARE_BITS)

    s, O, moves, responses = max(1, d // H), [], [], []
    worst = 0.0
    narrow = picks.reach < LAYER.enough_turn_reach * picks.size
    for h in range(H):
        # Responses that are small against the base want more of them.
        n = preset.range_probes(s) + (s // 4 if narrow else 0)
        rank = s if h else None
        found = yield from _one_head(h, drawn(n), rank, picks, shell, spec, rng, "main")
        if found is None:
            # A few moves may have left the pick: much shorter ones only fail if the token serves two heads.
            found = yield from _one_head(h, drawn(n, 1 / 4), rank, picks, shell, spec, rng, "repair")
        elif not found[0].clear:
            # More than noise beyond the range: a combination nearly left the pick, and twists the scales of all moves.
            again = yield from _one_head(h, drawn(n), rank, picks, shell, spec, rng, "repair")
            found = found if again is None or again[0].beyond > found[0].beyond else again
        if found is None:
            raise Shared
        seen, a, response, reduced = found
        s = seen.rank
        if H * s > d or (filling and d % s == 0 and H * s < d):
            raise Shared
        worst = max(worst, shell.noise * reduced)
        O.append(seen.basis)
        moves.append(a)
        responses.append(response)
    head, missing = lacking(O, moves)
    if missing:
        more = yield from _one_head(head, drawn(missing), None, picks, shell, spec, rng, "repair")
        if more is None:
            raise Shared
        moves[head] = np.vstack([moves[head], more[1]])
        responses[head] = np.hstack([responses[head], more[2]])
    Z, c, kappa, gain = split_with_identity(O, shell.M, moves, responses)
    _require_residual(c, kappa, shell)
    heads = Heads(O, [z / c for z in Z], worst * gain)
    return Sum(heads, shell.M / c, shell.b / c, c < 0)


def overlapping_at(picks: Picks, shell: Shell, spec: OracleSpec, rng: np.random.Generator) -> Asking[Sum]:
    """Heads that write into each other's ranges: every value map from moves of its own token along all d directions,
    and their sum then tells the scale: sum_h P_h = S - c Pi, all P_h in the units of one base."""
    d, O, Z, worst = spec.dim, [], [], 0.0
    for h in range(picks.heads):
        moves = all_directions(picks, spec, rng, _SPARE_BITS)
        whole = _one_head(h, moves, None, picks, shell, spec, rng, "main")
        found = yield from announced(whole, (picks.heads - h) * d)
        if found is None:
            found = yield from _one_head(h, moves / 4, None, picks, shell, spec, rng, "repair")
        if found is None:
            raise Shared
        seen, a, response, reduced = found
        O.append(seen.basis)
        Z.append(seen.basis.T @ np.linalg.lstsq(a, response.T, rcond=None)[0].T)
        sizes = np.linalg.svd(response, compute_uv=False)
        # The whole map is measured: its error stands against what the head writes, not against its weakest direction.
        worst = max(
            worst, shell.noise * reduced * float(sizes[seen.rank - 1] * np.sqrt(len(a)) / np.linalg.norm(sizes))
        )
    written = sum(o @ z for o, z in zip(O, Z, strict=True))
    parts = np.stack([(np.eye(d) - 1 / d).ravel(), np.asarray(written).ravel()], axis=1)
    c, kappa = np.linalg.lstsq(parts, shell.M.ravel(), rcond=None)[0]
    _require_residual(c, kappa, shell)
    missing = np.linalg.norm(shell.M.ravel() - parts @ [c, kappa]) / np.linalg.norm(shell.M)
    if missing > 10 * max(floor_for(shell.noise), worst):
        raise Shared
    heads = weighed(Heads(O, [kappa / c * z for z in Z], worst), room(d))
    return Sum(heads, shell.M / c, shell.b / c, c < 0, overlapping=True)


def room(d: int) -> int:
    """Attention weights that an answer of d numbers can tell: its mean is lost, and its scale wants a part of it to
    itself."""
    return d - 1 - max(2, d // 24)


def _require_residual(c: float, kappa: float, shell: Shell) -> None:
    if abs(c) < 1e-6 * np.linalg.norm(shell.M) / np.sqrt(len(shell.M)) or kappa == 0:
        raise NotIdentifiable(
            "the sum before the LayerNorm does not follow x_N: without a residual the LayerNorm hides the scale of "
            "all value maps. W and c could be known, P and the constant only up to one factor."
        )


def _one_head(
    h: int,
    a: Array,
    rank: int | None,
    picks: Picks,
    shell: Shell,
    spec: OracleSpec,
    rng: np.random.Generator,
    phase: str,
) -> Asking[tuple[Range, Array, Array, float] | None]:
    """Range, moves a (n, d), responses (d, n) of the head's token and their error's factor; None if far from clear.

    Without a rank it is found, with more moves if need be.
    """
    d, n, noise = spec.dim, len(a), shell.noise
    base = shell.direction(picks.answer)
    y = yield picks.moved(h, a, phase)
    z = shell.direction(y)
    left = _left_the_pick(base, z)
    if 0 < left.sum() <= n // 4:
        a[left] = steps(int(left.sum()), picks.reach / 4, spec, picks, rng, _SPARE_BITS)
        y = yield picks.moved(h, a[left], "repair")
        z[left] = shell.direction(y)
    seen = column_range(np.vstack([base, z]).T, noise, rank=None if rank is None else rank + 1)
    while rank is None and not seen.clear and len(z) < d + 4:
        more = steps(4, picks.reach, spec, picks, rng, _SPARE_BITS)
        y = yield picks.moved(h, more, "repair")
        a, z = np.vstack([a, more]), np.vstack([z, shell.direction(y)])
        seen = column_range(np.vstack([base, z]).T, noise)
    if not seen.clear or seen.rank < 2:
        return None
    try:
        response, reduced = yield from _calibrated(h, a, z, base, seen.basis, picks, shell, rng, phase)
    except ModelMismatch:
        # A combined move may have left the pick; on a target that is no such layer short ones fail too.
        try:
            response, reduced = yield from _calibrated(h, a, z, base, seen.basis, picks, shell, rng, "repair", 1)
        except ModelMismatch:
            return None
    # A head that fills all directions off the mean has the base among them.
    fills = seen.rank == d - 1
    found = column_range(response, noise * reduced if fills else noise, rank=None if fills else seen.rank - 1)
    if found.beyond > 0.2 * found.weakest:
        return None
    return found, a, response, reduced


def _left_the_pick(base: Array, z: Array) -> Array:
    """Which moves (n,) made a head pick another token: their directions z (n, d) jump, far beyond the others."""
    along = (z @ base) / (base @ base)
    sizes = np.linalg.norm(z - along[:, None] * base, axis=1) / np.linalg.norm(z, axis=1)
    few = len(z) < LAYER.moves_for_a_median
    return np.zeros(len(z), bool) if few else np.asarray(sizes > LAYER.direction_over_median * np.median(sizes))


def _calibrated(
    head: int,
    a: Array,
    z: Array,
    base: Array,
    basis: Array,
    picks: Picks,
    shell: Shell,
    rng: np.random.Generator,
    phase: str,
    eighths: int = 3,
) -> Asking[tuple[Array, float]]:
    """P_h a (d, n) in units of the base, scales removed, and by what an error of the answers is multiplied in them.

    A combination takes up to `eighths` eighths of every move.
    """
    n, k = len(a), basis.shape[1]
    # Each combination brings k equations and its own scale; few dimensions want more combinations.
    combinations = max(LAYER.combined_tokens, -(-(n + 2) // (k - 1)))
    # Eighths: the moves leave three bits to spare, so the combined tokens are exact too.
    mix = rng.integers(1, eighths + 1, (combinations, n)) * rng.choice([-1, 1], (combinations, n)) / 8
    y = yield picks.moved(head, mix @ a, phase)
    combined = shell.direction(y)
    weights = np.column_stack([1 - mix.sum(axis=1), mix])
    points = np.vstack([base, z]) @ basis
    r = scales_of_points(points, combined @ basis, weights)
    if not np.abs(r).min() > 0:
        raise ModelMismatch("an answer has no part in the combinations it should make up: the head left its token.")
    response = ((r[1:] / r[0])[:, None] * z - base).T
    sizes = np.linalg.svd(response, compute_uv=False)
    weakest = sizes[min(basis.shape[1] - 1, len(sizes)) - 1]
    length = float(np.linalg.norm(base))
    # Scales are as much worse than the answers as responses are smaller than the base, and then turn the weakest;
    # with few equations for each scale, nothing averages out.
    scales = 2.0 * max(1.0, 16 / k) * length / max(float(np.sqrt((sizes**2).sum() / n)), 1e-300)
    return response, (1 + scales) * length / max(float(weakest), 1e-300)
