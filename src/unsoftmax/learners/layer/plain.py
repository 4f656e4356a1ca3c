"""A layer without LayerNorm: affine one-token answers, heads told apart by hard attention, then their scores.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.layer.assembly import ALWAYS_SHARED, RESCANS, outcome
from unsoftmax.learners.layer.keys import read_keys
from unsoftmax.learners.layer.limited import limited, settles
from unsoftmax.learners.layer.one_row import Affine, read_affine
from unsoftmax.learners.layer.picks import Picks
from unsoftmax.learners.layer.polish import dual_picks
from unsoftmax.learners.layer.presets import PRESETS, Preset
from unsoftmax.learners.layer.ranges import Heads, Shared, read_ranges, read_values
from unsoftmax.learners.layer.scan import ample, scan
from unsoftmax.learners.layer.scores import Reader, Scales, find_scales
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.solvers.subspace import column_range
from unsoftmax.spec import OracleSpec


def plain(spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """The whole program."""
    affine = yield from read_affine(spec, rng)
    if ample(spec):
        return (yield from _settled(affine, spec, preset, rng))
    try:
        return (yield from limited(affine, spec, preset, rng))
    except (ModelMismatch, NotIdentifiable):
        # Heads of unequal rank do not fall apart there; some limits are wide enough for hard attention all the same.
        if not (yield from settles(affine, spec, rng)):
            raise
    return (yield from _settled(affine, spec, preset, rng))


def _settled(affine: Affine, spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    """Heads told apart by the tokens they settle on."""
    coarse = PRESETS["lean"] if preset.polish else preset
    heads, picks = yield from _told_apart(affine, coarse, spec, rng)
    reader = Reader(heads, affine.of, affine.noise)
    units = orthonormal(rng, spec.dim, min(reader.tokens(preset.tokens(heads.slots)), 16))
    scales = yield from find_scales(reader, units, rng, spec.domain.norm_limit)
    if preset.polish:
        heads = yield from _polished(reader, scales, picks, affine, preset, spec, rng)
        reader = Reader(heads, affine.of, affine.noise)
    keys = yield from read_keys(reader, scales, preset, spec, rng)
    return outcome(keys, reader, affine.constant, spec, residual=picks.residual)


def _told_apart(
    affine: Affine, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Heads, Picks]]:
    """What every head writes; scans again whenever two heads shared a token."""
    least, shared_at = 1, 0
    for _ in range(RESCANS):
        picks = yield from scan(spec, affine.noise, least, preset.scans, rng)
        try:
            total = column_range(_written(affine, picks), affine.noise, spare=0).rank
            unequal = picks.heads < least
            ranges = yield from read_ranges(picks, total, affine.noise, preset, spec, rng, unequal)
            heads = yield from read_values(ranges, _written(affine, picks), picks, affine.noise, preset, spec, rng)
        except Shared:
            # Once is chance; the same number of heads twice means that one more is to be expected.
            least, shared_at = picks.heads + (picks.heads == shared_at), picks.heads
            continue
        return heads, picks
    raise ModelMismatch(ALWAYS_SHARED.format(least))


def _polished(
    reader: Reader,
    scales: Scales,
    picks: Picks,
    affine: Affine,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
) -> Asking[Heads]:
    """The heads' ranges and value maps once more, at tokens with wider margins."""
    wide = yield from dual_picks(reader, scales, picks, preset, spec, rng)
    try:
        ranges = yield from read_ranges(wide, 0, affine.noise, preset, spec, rng)
        return (yield from read_values(ranges, _written(affine, picks), wide, affine.noise, preset, spec, rng))
    except Shared:
        return reader.heads


def _written(affine: Affine, picks: Picks) -> Array:
    """sum_h P_h."""
    return affine.M - np.eye(len(affine.M)) if picks.residual else affine.M
