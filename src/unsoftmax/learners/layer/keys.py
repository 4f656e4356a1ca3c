"""W_h and c_h: key directions in full at a few query tokens, inside the range found there at all the others.

Key directions at most query tokens: only their coordinates in the range that a few of them have shown.

Theory: docs/theory/attention-layer.md, "A real layer", keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.reductions import announced
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.scores import Reader, Scales
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import balanced_blocks, orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import on_grid
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import column_range, solve_orthogonal
from unsoftmax.spec import OracleSpec


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
        together = min(len(Q), int(LAYER.filled * m / max(1, rank - m)))
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
        size = min(LAYER.typical_logit / strongest, longest) if strongest > 0 else scales.step
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
        sums = LAYER.query_part_in_sum * np.add.reduceat(Q, starts, axis=0)
        joint = yield from self.reader.read(sums, shared, "main")
        seen, gain = [], 1.0
        for h, (y, b) in enumerate(zip(self.Y, self.offsets, strict=True)):
            a, last = np.zeros((n, y.shape[1])), shared @ y
            for size in {k, n - int(starts[-1])}:
                groups = np.flatnonzero(np.minimum(n - starts, k) == size)
                rows = starts[groups][:, None] + np.arange(size)
                A = np.vstack(
                    [_diagonal([e @ y for e in own[:size]]), np.hstack([LAYER.query_part_in_sum * last] * size)]
                )
                rest = joint[groups, h] - (1 - LAYER.query_part_in_sum * size) * (last @ b)
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


@dataclass(frozen=True, eq=False)
class Keys:
    """W_h = K_h'Q_h with orthonormal rows K_h (r, d) and Q_h (r, d), c_h = K_h'b_h (d,), head by head.

    `gain`: by what relative errors of the logits can have been multiplied. `over_offset`: how many times longer key
    directions are than the smallest c_h among them.
    """

    K: list[Array]
    Q: list[Array]
    c: list[Array]
    gain: float
    over_offset: float = 1.0


def read_keys(
    reader: Reader,
    scales: Scales,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
    *,
    zero: bool = True,
    known: tuple[Array, Array] | None = None,
) -> Asking[Keys]:
    """Key directions u_h(q) = W_h q + c_h at d independent q and q = 0, or the first one's opposite if not `zero`.

    `known`: a query token (d,) whose key directions (H, d) need not be asked again (only with `zero`).
    """
    d, H = spec.dim, len(reader.heads.O)
    s, largest = reader.heads.smallest, scales.step + scales.query
    E = exact(orthonormal(rng, d) * scales.step, largest, reader, spec)
    # Two bits to spare: sums of a few halves are exact too.
    Q = exact(_basis_with(known, d, rng) * scales.query, 4 * largest, reader, spec)
    Q = np.vstack([np.zeros((1, d)) if zero else -Q[:1], Q])
    first = min(preset.full_queries(s), d) + 1
    m = reader.tokens(preset.tokens(reader.heads.slots))
    asked = [j for j in range(first) if known is None or j != 1]
    ahead = len(asked) * -(-d // m) + (d + 1 - first) * preset.least_blocks(d, H, reader.heads.slots, reader.room)
    u = yield from announced(_in_full(reader, Q[asked], E, m, "main"), ahead)
    if known is not None:
        # u is affine in q: what is known at one length is known at all.
        turned = u[0] + (known[1] - u[0]) * (scales.query / float(np.linalg.norm(known[0])))
        u = np.concatenate([u[:1], turned[None], u[1:]])
    while True:
        bases = [_basis(u[:, h].T, s, reader) for h in range(H)]
        if len(u) == d + 1 or all(basis is not None for basis in bases):
            break
        # A head of larger rank in W than in P: more of its key directions are needed.
        more = yield from _in_full(reader, Q[len(u) : 2 * len(u)], E, m, "repair")
        u = np.concatenate([u, more])
    Y = [svd(u[:, h].T, full_matrices=False)[0] if b is None else b for h, b in enumerate(bases)]
    coordinates = [u[:, h] @ Y[h] for h in range(H)]
    gain = 1.0
    if len(u) < d + 1:
        offsets = _offsets(coordinates, zero)
        rest, gain = yield from InRange(reader, Y, offsets, spec).read(Q[len(u) :], u, preset, scales, rng)
        # An error in few key directions tilts their range by as much more as the weakest of them is smaller.
        gain *= max(float(np.linalg.cond(a)) for a in coordinates)
        coordinates = [np.vstack([a, b]) for a, b in zip(coordinates, rest, strict=True)]
    offsets = _offsets(coordinates, zero)
    slopes = [solve_orthogonal(Q[1:], a[1:] - b).T for a, b in zip(coordinates, offsets, strict=True)]
    over = max(_length(a) / max(_length(b[None]), 1e-300) for a, b in zip(coordinates, offsets, strict=True))
    return Keys([y.T for y in Y], slopes, [y @ b for y, b in zip(Y, offsets, strict=True)], gain, over)


def _length(rows: Array) -> float:
    """Root mean square length of the rows (n, r)."""
    return float(np.sqrt((rows * rows).sum(axis=1).mean()))


def _offsets(coordinates: list[Array], zero: bool) -> list[Array]:
    """What u_h is at q = 0, from its coordinates at q = 0 or at two opposite q, which come first."""
    return [a[0] if zero else (a[0] + a[1]) / 2 for a in coordinates]


def _basis_with(known: tuple[Array, Array] | None, d: int, rng: np.random.Generator) -> Array:
    """Orthonormal rows (d, d), the first along the known query token if there is one."""
    if known is None:
        return orthonormal(rng, d)
    Q = np.linalg.qr(np.column_stack([known[0], rng.standard_normal((d, d - 1))]))[0].T
    return np.asarray(Q * np.where(np.arange(d) == 0, np.sign(Q[0] @ known[0]), 1.0)[:, None])


def directions_at(
    reader: Reader, Q: Array, scales: Scales, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[Array]:
    """u_h(q) in full for the rows of Q (n, d), as (n, H, d)."""
    E = exact(orthonormal(rng, spec.dim) * scales.step, scales.step + 4 * scales.query, reader, spec)
    return (yield from _in_full(reader, Q, E, reader.tokens(preset.tokens(reader.heads.slots)), "main"))


def _in_full(reader: Reader, Q: Array, E: Array, m: int, phase: str) -> Asking[Array]:
    """u_h(q) for every q of Q (n, d), as (n, H, d), from displacements along all of E (d, d)."""
    parts = np.array_split(E, -(-len(E) // m))
    logits = []
    for part in parts:
        logits.append((yield from reader.read(Q, part, phase)))
    t = np.concatenate(logits, axis=2)
    return solve_orthogonal(E, t.reshape(-1, len(E)).T).T.reshape(t.shape)


def _basis(u: Array, s: int, reader: Reader) -> Array | None:
    """Orthonormal basis (d, r) of the key directions u (d, n): rank s if that is where they end, else where they do."""
    U, sizes, _ = svd(u, full_matrices=False)
    # What errors leave beyond the rank; a direction that is merely weak stands out of that.
    errors = max(1e4 * reader.noise, 100 * (reader.worst + reader.heads.error))
    left = max(LAYER.key_beyond_rank, errors)
    if s < len(sizes) and sizes[s] < 0.1 * sizes[s - 1] and sizes[s] < left * sizes[0]:
        return np.asarray(U[:, :s])
    seen = column_range(u, max(reader.noise * 1e4, 1e-9))
    # A gap alone is none: trained keys have one at a few millionths, which near ties feel. Rounding hides these.
    ends = seen.clear and (seen.beyond <= errors or reader.noise >= SHORT_FORMAT)
    return seen.basis if ends and seen.rank < u.shape[1] - 1 else None
