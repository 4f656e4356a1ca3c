"""W_h and c_h: key directions in full at a few query tokens, inside the range found there at all the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.base import Asking
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.learners.layer.scores import TYPICAL, Reader, Scales
from unsoftmax.probes.around import balanced_blocks, orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.probes.scales import on_grid
from unsoftmax.solvers.orthogonal import solve_orthogonal
from unsoftmax.solvers.subspace import column_range
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Keys:
    """W_h = K_h'Q_h with orthonormal rows K_h (r, d) and Q_h (r, d), c_h = K_h'b_h (d,), head by head.

    `gain`: by what relative errors of the logits can have been multiplied.
    """

    K: list[Array]
    Q: list[Array]
    c: list[Array]
    gain: float


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
    E = _exact(orthonormal(rng, d) * scales.step, largest, reader, spec)
    Q = _exact(_basis_with(known, d, rng) * scales.query, largest, reader, spec)
    Q = np.vstack([np.zeros((1, d)) if zero else -Q[:1], Q])
    first = min(preset.full_queries(s), d) + 1
    m = reader.tokens(preset.tokens(reader.heads.slots))
    asked = [j for j in range(first) if known is None or j != 1]
    u = yield from _in_full(reader, Q[asked], E, m, "main")
    if known is not None:
        # u is affine in q: what is known at one length is known at all.
        turned = u[0] + (known[1] - u[0]) * (scales.query / float(np.linalg.norm(known[0])))
        u = np.concatenate([u[:1], turned[None], u[1:]])
    while True:
        bases = [_basis(u[:, h].T, s, reader.noise) for h in range(H)]
        if len(u) == d + 1 or all(basis is not None for basis in bases):
            break
        # A head of larger rank in W than in P: more of its key directions are needed.
        more = yield from _in_full(reader, Q[len(u) : 2 * len(u)], E, m, "repair")
        u = np.concatenate([u, more])
    Y = [np.linalg.svd(u[:, h].T, full_matrices=False)[0] if b is None else b for h, b in enumerate(bases)]
    coordinates = [u[:, h] @ Y[h] for h in range(H)]
    gain = 1.0
    if len(u) < d + 1:
        rest, gain = yield from _in_range(reader, Q[len(u) :], Y, u, preset, scales, spec, rng)
        # An error in few key directions tilts their range by as much more as the weakest of them is smaller.
        gain *= max(float(np.linalg.cond(a)) for a in coordinates)
        coordinates = [np.vstack([a, b]) for a, b in zip(coordinates, rest, strict=True)]
    offsets = [a[0] if zero else (a[0] + a[1]) / 2 for a in coordinates]
    slopes = [solve_orthogonal(Q[1:], a[1:] - b).T for a, b in zip(coordinates, offsets, strict=True)]
    return Keys([y.T for y in Y], slopes, [y @ b for y, b in zip(Y, offsets, strict=True)], gain)


def _exact(x: Array, largest: float, reader: Reader, spec: OracleSpec) -> Array:
    """x on a grid where sums with others up to `largest` are exact; coordinates that are embedded have no grid."""
    return x if reader.embed is not None else on_grid(x, largest, spec.dtype)


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
    E = _exact(orthonormal(rng, spec.dim) * scales.step, scales.step + 4 * scales.query, reader, spec)
    return (yield from _in_full(reader, Q, E, reader.tokens(preset.tokens(reader.heads.slots)), "main"))


def _in_full(reader: Reader, Q: Array, E: Array, m: int, phase: str) -> Asking[Array]:
    """u_h(q) for every q of Q (n, d), as (n, H, d), from displacements along all of E (d, d)."""
    parts = np.array_split(E, -(-len(E) // m))
    logits = []
    for part in parts:
        logits.append((yield from reader.read(Q, part, phase)))
    t = np.concatenate(logits, axis=2)
    return solve_orthogonal(E, t.reshape(-1, len(E)).T).T.reshape(t.shape)


def _basis(u: Array, s: int, noise: float) -> Array | None:
    """Orthonormal basis (d, r) of the key directions u (d, n): rank s if that is where they end, else where they do."""
    U, sizes, _ = np.linalg.svd(u, full_matrices=False)
    if s < len(sizes) and sizes[s] < 0.1 * sizes[s - 1]:
        return np.asarray(U[:, :s])
    seen = column_range(u, max(noise * 1e4, 1e-9))
    return seen.basis if seen.clear and seen.rank < u.shape[1] - 1 else None


def _in_range(
    reader: Reader,
    Q: Array,
    Y: list[Array],
    u: Array,
    preset: Preset,
    scales: Scales,
    spec: OracleSpec,
    rng: np.random.Generator,
) -> Asking[tuple[list[Array], float]]:
    """Coordinates (n, r) of u_h(q) in Y_h (d, r) from displacements that all heads see well, and their conditioning."""
    m = preset.block_tokens(reader.heads.slots)
    if m * len(Y) > reader.room:
        m = -(-reader.heads.slots // 2)
    blocks = max(preset.blocks, -(-max(y.shape[1] for y in Y) // m))
    values = [np.linalg.qr(z.T)[0].T for z in reader.heads.Z]
    E = balanced_blocks(values, [y.T for y in Y], blocks, m, rng)
    strongest = max(float(np.sqrt(((u[:, h] @ E.T) ** 2).mean())) for h in range(len(Y)))
    longest = scales.longest / float(np.linalg.norm(E, axis=1).max())
    size = min(TYPICAL / strongest, longest) if strongest > 0 else scales.step
    E = _exact(E * size, size + scales.query, reader, spec)
    logits = []
    for part in np.split(E, blocks):
        logits.append((yield from reader.read(Q, part, "main")))
    t = np.concatenate(logits, axis=2)
    seen = [np.linalg.lstsq(E @ y, t[:, h].T, rcond=None)[0].T for h, y in enumerate(Y)]
    return seen, max(float(np.linalg.cond(E @ y)) for y in Y)
