"""What each head writes, and which heads share their values.

Theory: docs/theory/attention-layer.md, "Layers of language models", values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.apart import Apart, respond
from unsoftmax.learners.rotary.scene import EDGE, Scene
from unsoftmax.probes.base import Array
from unsoftmax.solvers.score_roots import Written, score_roots

_SHRINKS = 4
"""Times a token is shortened at most: scores of up to 14 times `_MODEST` show, so that two suffice mostly."""

_MODEST = 4.0
"""Score that a token with too strong a one is shortened to: its weight and the others' are told well."""


@dataclass(frozen=True, eq=False)
class Values:
    """P_h = O[h] V[group[h]]: O (H, outputs, s), V (G, s, d) with orthonormal rows, group (H,).

    error: estimate of the relative error of P_h.
    """

    O: Array
    V: Array
    group: Array
    error: float

    @property
    def width(self) -> int:
        return self.V.shape[1]

    @property
    def P(self) -> Array:
        """Value maps (H, outputs, d)."""
        return np.asarray(self.O @ self.V[self.group])


def read_values(scene: Scene, apart: Apart, spare: int, shares: Array, rng: np.random.Generator) -> Asking[Values]:
    """H + spare cells for every new token until P_h x stops growing; V from M = sum_h shares_h O_h V_g(h).

    shares (H,): the weight of a token that stands alone, 1 without sinks.
    """
    H, r = apart.heads, len(scene.written)
    chosen = independent(apart.sums, H + spare)
    cells, others = apart.cells[chosen], apart.sums[:, chosen] - 1
    start = np.column_stack([scene.written @ apart.x, rng.standard_normal((r, r - 1))])
    X = np.linalg.qr(start)[0].T @ scene.written * (EDGE * scene.radius)
    columns, worst = [apart.columns], 0.0
    for j in range(1, r):
        if (found := _complete(scene, columns, shares, r)) is not None:
            return _grouped(scene, columns, found, shares, worst)
        written = yield from _written(scene, cells, X[j], apart.q, others, shares)
        worst = max(worst, written.residual)
        O = _stacked(columns)
        inside = [np.linalg.lstsq(o, p, rcond=None)[0] for o, p in zip(O, written.columns.T, strict=True)]
        parts = zip(O, inside, written.columns.T, strict=True)
        if max(np.linalg.norm(o @ z - p) / np.linalg.norm(p) for o, z, p in parts) < scene.limits.new:
            return _grouped(scene, columns, sharing(np.array(inside), scene.limits.shared_values), shares, worst)
        columns.append(written.columns)
    return _grouped(scene, columns, np.zeros(H, dtype=int), shares, worst)


def _written(scene: Scene, cells: Array, x: Array, q: Array, others: Array, shares: Array) -> Asking[Written]:
    """P_h x of all heads. A token that a head hardly weighs, or hardly any other beside it, hides what that head
    writes: it is shortened and asked again, since scores and P_h x shrink with it."""
    share, phase = 1.0, "main"
    for _ in range(_SHRINKS):
        y = yield from respond(scene, cells, share * x, q, phase)
        written = score_roots(y, scene.M @ (share * x), others, shares[:, None])
        weights = written.exps[:, None] / (written.exps[:, None] + others)
        hidden = np.minimum(weights, 1 - weights).max(axis=1) < scene.limits.readable
        strongest = float(np.abs(np.log(written.exps[hidden])).max(initial=0.0))
        if strongest <= _MODEST:
            break
        share, phase = share * _MODEST / strongest, "repair"
    return replace(written, columns=written.columns / share)


def independent(sums: Array, n: int) -> Array:
    """n cells in which the heads' weights are as independent as possible, chosen one after the other."""
    weights = 1 / sums
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    gram = 1e-6 * np.eye(len(sums))
    chosen: list[int] = []
    for _ in range(min(n, sums.shape[1])):
        gain = np.einsum("ht,hg,gt->t", unit, np.linalg.inv(gram), unit)
        gain[chosen] = -1
        chosen.append(int(np.argmax(gain)))
        gram = gram + np.outer(unit[:, chosen[-1]], unit[:, chosen[-1]])
    return np.array(chosen)


def _stacked(columns: list[Array]) -> Array:
    """(H, outputs, j) from j arrays (outputs, H)."""
    return np.stack(columns, axis=2).transpose(1, 0, 2)


def _complete(scene: Scene, columns: list[Array], shares: Array, rank: int) -> Array | None:
    """Groups if the columns found explain M already; a square fit proves nothing, so shares must coincide in groups."""
    j, H = len(columns), len(shares)
    if rank % j or H * j > len(scene.M) or (j == 1 and rank > H):
        return None
    flat = np.hstack(list(_stacked(columns) * shares[:, None, None]))
    Z = np.linalg.lstsq(flat, scene.M, rcond=None)[0]
    miss = np.linalg.norm(flat @ Z - scene.M) / np.linalg.norm(scene.M)
    group = sharing(Z.reshape(H, j, -1), scene.limits.shared_values)
    return group if miss < max(1e-8, 1e4 * scene.noise) and (group.max() + 1) * j == rank else None


def sharing(Z: Array, limit: float) -> Array:
    """Group (H,) of heads with coordinates Z_h that are equal up to `limit`, relatively."""
    group = np.full(len(Z), -1)
    first: list[int] = []
    for h, z in enumerate(Z):
        off = [np.linalg.norm(z - Z[k]) / np.linalg.norm(z) for k in first]
        group[h] = next((g for g, gap in enumerate(off) if gap < limit), len(first))
        if group[h] == len(first):
            first.append(h)
    return group


def _grouped(scene: Scene, columns: list[Array], group: Array, shares: Array, worst: float) -> Values:
    O, G = _stacked(columns), int(group.max()) + 1
    s = O.shape[2]
    together = np.hstack([(O * shares[:, None, None])[group == g].sum(axis=0) for g in range(G)])
    V = np.linalg.lstsq(together, scene.M, rcond=None)[0]
    miss = np.linalg.norm(together @ V - scene.M) / np.linalg.norm(scene.M)
    if miss > max(1e-6, 1e5 * scene.noise):
        raise ModelMismatch(
            f"{len(O)} heads of {s} dimensions in {G} groups leave {miss:.1g} of what single tokens write unexplained: "
            "heads of unequal rank, or more than attention."
        )
    V = V.reshape(G, s, -1)
    error = max(worst, float(miss), _disagreement(scene, O, V, group, shares))
    for g in range(G):
        q, r = np.linalg.qr(V[g].T)
        V[g] = q.T
        O[group == g] = O[group == g] @ r.T
    return Values(O, V, group, error)


def _disagreement(scene: Scene, O: Array, V: Array, group: Array, shares: Array) -> float:
    """Relative error of what heads write: M split among all heads gives heads of a group the same V up to it."""
    H, s = len(O), O.shape[2]
    if H * s > len(scene.M):
        return 0.0
    flat = np.hstack(list(O * shares[:, None, None]))
    Z = np.linalg.lstsq(flat, scene.M, rcond=None)[0].reshape(H, s, -1)
    off = np.linalg.norm(Z - V[group]) / np.linalg.norm(V[group])
    sizes = np.linalg.svd(flat, compute_uv=False)
    # The split raises errors by the conditioning of what heads write together.
    return float(off / np.sqrt((sizes**2).mean() * (sizes**-2).mean()))
