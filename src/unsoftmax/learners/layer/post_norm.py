"""LayerNorm after attention and residual: every answer is a direction, so scales are found along with everything.

Theory: docs/theory/attention-layer.md, "LayerNorm after".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.assembly import ALWAYS_SHARED, outcome
from unsoftmax.learners.layer.blurred import refusal
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.picks import Picks, Readout
from unsoftmax.learners.layer.polish import dual_picks
from unsoftmax.learners.layer.post_ranges import Sum, overlapping_at, ranges_at, room
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.ranges import Shared
from unsoftmax.learners.layer.scan import scan
from unsoftmax.learners.layer.scores import Reader, find_scales
from unsoftmax.learners.layer.shell import Shell, read_shell
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held
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
    if shell.noise > SHORT_FORMAT:
        spec = replace(spec, dtype="float32")
    found, picks = yield from _told_apart(shell, preset, spec, rng)
    if found.flipped:
        shell = replace(shell, inverse=-shell.inverse)
    try:
        return (yield from _read(found, picks, shell, preset, spec, rng))
    except ModelMismatch as error:
        # Heads that were told apart wrongly show it where their weights are read.
        raise _refused(error.reason, shell, error.code) from error


def _read(
    found: Sum, picks: Picks, shell: Shell, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Program:
    """W and c of the heads that were told apart, and eps."""
    reader = _reader(found, shell)
    units = orthonormal(rng, spec.dim, min(reader.tokens(preset.tokens(found.heads.slots)), 16))
    scales = yield from find_scales(reader, units, rng, spec.domain.norm_limit)
    if preset.polish:
        wide = yield from dual_picks(reader, scales, picks, preset, spec, rng)
        try:
            found = yield from (
                overlapping_at(wide, shell, spec, rng)
                if found.overlapping
                else ranges_at(wide, shell, preset, spec, rng)
            )
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
            if picks.heads < least:
                # No sequence shows one more: no two heads share a token, their ranges overlap.
                return (yield from overlapping_at(picks, shell, spec, rng)), picks
            # A rank that would fill the space with more heads than were seen: once, that is taken for chance.
            return (yield from ranges_at(picks, shell, preset, spec, rng, filling=shared_at != picks.heads)), picks
        except Shared:
            least, shared_at = picks.heads + (picks.heads == shared_at), picks.heads
    raise _refused(ALWAYS_SHARED.format(least), shell)


def _refused(reason: str, shell: Shell, code: Code | None = None) -> ModelMismatch | NotIdentifiable:
    """The reason, or that rounding hides what it rests on."""
    # Where heads write next to nothing only the residual is left: its factor is the eigenvalue of most directions.
    own = float(np.median(np.linalg.eigvals(shell.M).real))
    return refusal(reason, shell.M - own * np.eye(len(shell.M)), shell.noise, code)


@dataclass(eq=False)
class DirectionReader(Reader):
    """Logits from directions: the scale of every answer is what the part outside all heads' reach must have."""

    shell: Shell | None = None

    @property
    def room(self) -> int:
        return room(len(self.heads.O[0]))

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
