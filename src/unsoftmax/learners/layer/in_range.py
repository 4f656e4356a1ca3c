"""Key directions at most query tokens: only their coordinates in the range that a few of them have shown.

Theory: docs/theory/attention-layer.md, "A real layer", keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.scores import TYPICAL, Reader, Scales
from unsoftmax.probes.around import balanced_blocks
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import on_grid
from unsoftmax.spec import OracleSpec

_FILLED = 0.6
"""Unknowns that query tokens asked together leave to the sequence they share, as a share of its tokens."""

_PART = 0.5
"""Part of each query token in their sum: exact in every number format."""


def exact(x: Array, largest: float, reader: Reader, spec: OracleSpec) -> Array:
    """x on a grid where sums with others up to `largest` are exact; coordinates that are embedded have no grid."""
    return x if reader.embed is not None else on_grid(x, largest, spec.dtype)


@dataclass(frozen=True, eq=False)
class InRange:
    """Coordinates of u_h(q) in Y_h (d, r); `offsets` (r,) are those of u_h(0)."""

    reader: Reader
    Y: list[Array]
    offsets: list[Array]
    spec: OracleSpec

    def read(
        self, Q: Array, u: Array, preset: Preset, scales: Scales, rng: np.random.Generator
    ) -> Asking[tuple[list[Array], float]]:
        """Coordinates (n, r) at Q (n, d), head by head, and their conditioning; u (., H, d) tells their size."""
        heads = self.reader.heads
        rank = max(y.shape[1] for y in self.Y)
        m = preset.block_tokens(heads.slots)
        if m * len(self.Y) <= self.reader.room:
            blocks = max(preset.blocks, -(-rank // m))
            E = yield from self._design(blocks, m, False, u, scales, rng)
            return (yield from self._one_by_one(Q, np.split(E, blocks)))
        # One sequence cannot show all coordinates. What it lacks comes from sums of query tokens, or from a second one.
        m = self.reader.tokens(preset.tokens(heads.slots))
        together = min(len(Q), int(_FILLED * m / max(1, rank - m)))
        if together < 2:
            m = -(-heads.slots // 2)
            blocks = max(preset.blocks, -(-rank // m))
            E = yield from self._design(blocks, m, False, u, scales, rng)
            return (yield from self._one_by_one(Q, np.split(E, blocks)))
        E = yield from self._design(together + 1, m, True, u, scales, rng)
        return (yield from self._together(Q, np.split(E, together + 1)))

    def _design(
        self, blocks: int, m: int, alone: bool, u: Array, scales: Scales, rng: np.random.Generator
    ) -> Asking[Array]:
        """Displacements (blocks * m, d) that all heads see well; `alone`: the keys see every block well by itself."""
        values = [np.linalg.qr(z.T)[0].T for z in self.reader.heads.Z]
        keys = [y.T for y in self.Y]
        E = balanced_blocks(values + keys if alone else values, [] if alone else keys, blocks, m, rng)
        strongest = max(float(np.sqrt(((u[:, h] @ E.T) ** 2).mean())) for h in range(len(self.Y)))
        longest = scales.longest / float(np.linalg.norm(E, axis=1).max())
        size = min(TYPICAL / strongest, longest) if strongest > 0 else scales.step
        (E,) = yield from settle("blocks", exact(E * size, size + scales.query, self.reader, self.spec))
        return E

    def _one_by_one(self, Q: Array, blocks: list[Array]) -> Asking[tuple[list[Array], float]]:
        """Every block at every q."""
        logits = []
        for part in blocks:
            logits.append((yield from self.reader.read(Q, part, "main")))
        t, E = np.concatenate(logits, axis=2), np.vstack(blocks)
        seen = [np.linalg.lstsq(E @ y, t[:, h].T, rcond=None)[0].T for h, y in enumerate(self.Y)]
        return seen, max(float(np.linalg.cond(E @ y)) for y in self.Y)

    def _together(self, Q: Array, blocks: list[Array]) -> Asking[tuple[list[Array], float]]:
        """k query tokens with one block each, too small for all coordinates, and one block more at half their sum.

        u is affine: the last block sees a combination of what all the others left open, which differs between them.
        """
        *own, shared = blocks
        k, n, m = len(own), len(Q), len(shared)
        t = np.zeros((n, len(self.Y), m))
        for g, part in enumerate(own):
            t[g::k] = yield from self.reader.read(Q[g::k], part, "main")
        starts = np.arange(0, n, k)
        sums = _PART * np.add.reduceat(Q, starts, axis=0)
        joint = yield from self.reader.read(sums, shared, "main")
        seen, gain = [], 1.0
        for h, (y, b) in enumerate(zip(self.Y, self.offsets, strict=True)):
            a, last = np.zeros((n, y.shape[1])), shared @ y
            for size in {k, n - int(starts[-1])}:
                groups = np.flatnonzero(np.minimum(n - starts, k) == size)
                rows = starts[groups][:, None] + np.arange(size)
                A = np.vstack([_diagonal([e @ y for e in own[:size]]), np.hstack([_PART * last] * size)])
                rest = joint[groups, h] - (1 - _PART * size) * (last @ b)
                right = np.hstack([t[rows, h].reshape(len(groups), -1), rest])
                a[rows] = np.linalg.lstsq(A, right.T, rcond=None)[0].T.reshape(len(groups), size, -1)
                gain = max(gain, float(np.linalg.cond(A)))
            seen.append(a)
        return seen, gain


def _diagonal(blocks: list[Array]) -> Array:
    """Blocks (m, r) along the diagonal of (k m, k r)."""
    m, r = blocks[0].shape
    A = np.zeros((len(blocks), m, len(blocks), r))
    for i, block in enumerate(blocks):
        A[i, :, i] = block
    return A.reshape(len(blocks) * m, -1)
