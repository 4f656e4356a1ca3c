"""LayerNorm after attention and residual: every answer is a direction, so scales are found along with everything.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.assembly import ALWAYS_SHARED, outcome
from unsoftmax.learners.layer.blurred import refusal
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.picks import Picks, Readout
from unsoftmax.learners.layer.polish import dual_picks
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.ranges import Heads, Shared, steps
from unsoftmax.learners.layer.scan import scan
from unsoftmax.learners.layer.scores import Reader, find_scales
from unsoftmax.learners.layer.shell import Shell, read_shell
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
from unsoftmax.solvers.mixture import lacking, split_with_identity
from unsoftmax.solvers.projective import scales_of_points
from unsoftmax.solvers.subspace import Range, column_range
from unsoftmax.spec import OracleSpec


def readout(shell: Shell) -> Readout:
    """Responses of directions: what moves off the base's own direction; straight if the base lies between the ends."""

    def change(y: Array, base: Array) -> Array:
        z, b = shell.direction(y), shell.direction(base)
        unit = b / np.linalg.norm(b)
        along = z @ unit
        # Every answer at the length where it has the base's component along the base: the first order is then exact.
        return np.asarray(z * (np.linalg.norm(b) / along)[:, None] - b)

    def bend(up: Array, down: Array, base: Array) -> float:
        ends, b = np.stack([shell.direction(up), shell.direction(down)], axis=1), shell.direction(base)
        mix = np.linalg.lstsq(ends, b, rcond=None)[0]
        return float(np.linalg.norm(ends @ mix - b) / np.linalg.norm(b))

    return Readout(change, bend, linear=False)


def post_norm(spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """The whole program."""
    if spec.outputs != spec.dim:
        raise ModelMismatch("answers look normalised, but a residual needs as many outputs as inputs.")
    preset = preset.for_directions()
    shell = yield from read_shell(spec, rng)
    found, picks = yield from _told_apart(shell, preset, spec, rng)
    if found.flipped:
        shell = replace(shell, inverse=-shell.inverse)
    reader = _reader(found, shell)
    units = orthonormal(rng, spec.dim, min(reader.tokens(preset.tokens(found.heads.slots)), 16))
    scales = yield from find_scales(reader, units, rng, spec.domain.norm_limit)
    if preset.polish:
        wide = yield from dual_picks(reader, scales, picks, preset, spec, rng)
        try:
            found = yield from ranges_at(wide, shell, preset, spec, rng)
            reader = _reader(found, shell)
        except Shared:
            pass
    keys = yield from read_keys(reader, scales, preset, spec, rng, zero=False)
    eps = yield from read_eps(found, shell, spec, rng)
    around = {"norm": "post", "gamma": 1 / shell.inverse, "beta": shell.beta, "eps": eps}
    return outcome(keys, reader, found.b, spec, residual=True, **around)


def _reader(found: Sum, shell: Shell) -> DirectionReader:
    return DirectionReader(found.heads, lambda q: q @ found.M.T + found.b, shell.noise, shell=shell)


def _told_apart(shell: Shell, preset: Preset, spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Sum, Picks]]:
    """Ranges and value maps of all heads; scans again whenever two heads shared a token."""
    least, shared_at = 1, 0
    for _ in range(CORE.draws):
        picks = yield from scan(spec, shell.noise, least, preset.scans, rng, readout(shell))
        try:
            # A rank that would fill the space with more heads than were seen: once, that is taken for chance.
            return (yield from ranges_at(picks, shell, preset, spec, rng, filling=shared_at != picks.heads)), picks
        except Shared:
            least, shared_at = picks.heads + (picks.heads == shared_at), picks.heads
    # Where heads write next to nothing only the residual is left: its factor is the eigenvalue of most directions.
    own = float(np.median(np.linalg.eigvals(shell.M).real))
    raise refusal(ALWAYS_SHARED.format(least), shell.M - own * np.eye(spec.dim), shell.noise)


@dataclass(frozen=True, eq=False)
class Sum:
    """What stands before the LayerNorm, in true units: heads off the mean, M x + b for one token."""

    heads: Heads
    M: Array
    b: Array
    flipped: bool


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
    s, O, moves, responses = max(1, d // H), [], [], []
    worst = 0.0
    narrow = picks.reach < LAYER.enough_turn_reach * picks.size
    for h in range(H):
        # Responses that are small against the base want more of them.
        n = preset.range_probes(s) + (s // 4 if narrow else 0)
        found = yield from _one_head(h, n, s if h else None, picks, shell, spec, rng, "main")
        if found is None:
            # A few moves may have left the pick: much shorter ones only fail if the token serves two heads.
            short = replace(picks, reach=picks.reach / 4)
            found = yield from _one_head(h, n, s if h else None, short, shell, spec, rng, "repair")
        elif not found[0].clear:
            # More than noise beyond the range: a combination nearly left the pick, and twists the scales of all moves.
            again = yield from _one_head(h, n, s if h else None, picks, shell, spec, rng, "repair")
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
        more = yield from _one_head(head, missing, None, picks, shell, spec, rng, "repair")
        if more is None:
            raise Shared
        moves[head] = np.vstack([moves[head], more[1]])
        responses[head] = np.hstack([responses[head], more[2]])
    Z, c, kappa, gain = split_with_identity(O, shell.M, moves, responses)
    if abs(c) < 1e-6 * np.linalg.norm(shell.M) / np.sqrt(d) or kappa == 0:
        raise NotIdentifiable(
            "the sum before the LayerNorm does not follow x_N: without a residual the LayerNorm hides the scale of "
            "all value maps. W and c could be known, P and the constant only up to one factor."
        )
    heads = Heads(O, [z / c for z in Z], worst * gain)
    return Sum(heads, shell.M / c, shell.b / c, c < 0)


def _one_head(
    h: int,
    n: int,
    rank: int | None,
    picks: Picks,
    shell: Shell,
    spec: OracleSpec,
    rng: np.random.Generator,
    phase: str,
) -> Asking[tuple[Range, Array, Array, float] | None]:
    """Range, moves (n, d), responses (d, n) of the head's token and their error's factor; None if far from clear.

    Without a rank it is found, with more moves if need be.
    """
    d, noise = spec.dim, shell.noise
    base = shell.direction(picks.answer)
    a = steps(n, picks.reach, spec, picks, rng, 3)
    y = yield picks.moved(h, a, phase)
    z = shell.direction(y)
    left = _left_the_pick(base, z)
    if 0 < left.sum() <= n // 4:
        a[left] = steps(int(left.sum()), picks.reach / 4, spec, picks, rng, 3)
        y = yield picks.moved(h, a[left], "repair")
        z[left] = shell.direction(y)
    seen = column_range(np.vstack([base, z]).T, noise, rank=None if rank is None else rank + 1)
    while rank is None and not seen.clear and len(z) < d + 4:
        more = steps(4, picks.reach, spec, picks, rng, 3)
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


@dataclass(eq=False)
class DirectionReader(Reader):
    """Logits from directions: the scale of every answer is what the part outside all heads' reach must have."""

    shell: Shell | None = None

    @property
    def room(self) -> int:
        # The mean is lost, and the scale wants a part of the answer to itself.
        return len(self.heads.O[0]) - 1 - max(2, len(self.heads.O[0]) // 24)

    def weights(self, y: Array, Q: Array, E: Array) -> tuple[Array, float]:
        assert self.shell is not None
        Qr, R, gain = self._factors(E)
        z, s = self.shell.direction(y), self.alone(Q)
        outside_z, outside_s = z - (z @ Qr) @ Qr.T, s - (s @ Qr) @ Qr.T
        scale = (outside_z * outside_s).sum(axis=1) / (outside_z**2).sum(axis=1)
        written = scale[:, None] * z - s
        alpha = solve_triangular(R, Qr.T @ written.T).T.reshape(len(Q), len(self.heads.O), len(E))
        # The scale itself is only as good as the part it is read from.
        share = float((np.linalg.norm(z, axis=1) / np.linalg.norm(outside_z, axis=1)).max())
        return alpha, gain * self.noise * share * float(np.abs(scale[:, None] * z).max())


def read_eps(found: Sum, shell: Shell, spec: OracleSpec, rng: np.random.Generator) -> Asking[float]:
    """eps from one-token answers whose sum before the LayerNorm is small: |direction|^2 / d = var / (var + eps)."""
    d = spec.dim
    centre = -np.linalg.lstsq(found.M, found.b, rcond=1e-10)[0]
    v = rng.standard_normal(d)
    sizes = 10.0 ** -np.arange(7)
    x = centre + sizes[:, None] * v
    x = held(x, spec.dtype)
    y = yield Probes(x[:, None], phase="pilot")
    s = x @ found.M.T + found.b
    variance = (s**2).mean(axis=1)
    ratio = (shell.direction(y) ** 2).mean(axis=1)
    # What cancels in s leaves its rounding: only sums well above that tell eps.
    clean = variance > (1e3 * shell.noise) ** 2 * (np.abs(centre).max() + np.abs(found.b).max()) ** 2
    usable = clean & (ratio < 0.999) & (ratio > 1e-3)
    if not usable.any():
        return 0.0
    best = np.flatnonzero(usable)[np.argmin(np.abs(ratio[usable] - 0.5))]
    return float(variance[best] * (1 / ratio[best] - 1))
