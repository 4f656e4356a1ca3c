"""What each head writes, and which heads share their values.

Theory: docs/theory/attention-layer.md, "Layers of language models", values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import Steps, find_scale
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.learners.rotary.apart import Apart, respond
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.probes.base import Array
from unsoftmax.solvers.score_roots import Written, score_roots
from unsoftmax.solvers.singular import svd


@dataclass(frozen=True, eq=False)
class Values:
    """P_h = O[h] V[group[h]]: O (H, outputs, s), V (G, s, d) with orthonormal rows, group (H,).

    error: estimate of the relative error of P_h; linear: False where scores that are linear in the tokens do not
    explain the answers that they were read from; narrow: least rank of a head, where ranks differ.
    """

    O: Array
    V: Array
    group: Array
    error: float
    linear: bool = True
    narrow: int | None = None

    @property
    def width(self) -> int:
        return self.V.shape[1]

    @property
    def P(self) -> Array:
        """Value maps (H, outputs, d)."""
        return np.asarray(self.O @ self.V[self.group])


def read_values(scene: Scene, apart: Apart, plan: Plan, shares: Array, rng: np.random.Generator) -> Asking[Values]:
    """H + plan.spare cells for every new token until P_h x stops growing; V from M = sum_h shares_h O_h V_g(h).

    shares (H,): the weight of a token that stands alone, 1 without sinks.
    """
    found, cells = yield from _found(scene, apart, plan.spare, shares, rng)
    values = found.values(scene, shares)
    m = plan.filled(values.width, scene.shown // apart.heads)
    for _ in range(plan.more):
        split = raised(np.hstack(list(values.O[..., :m])))
        more = (
            telling(found, values)
            if values.error > min(ROTARY.fine_error, ROTARY.together_error / split) * scene.noise
            else []
        )
        # Whether more is asked may hang on last digits.
        more = yield from settle_list("telling token", more)
        if not more:
            break
        found = yield from _read(scene, found, more[0], cells, apart, shares, "repair")
        values = found.values(scene, shares)
    return values


@dataclass(frozen=True, eq=False)
class Found:
    """What heads write, columns (H, outputs, n), of n tokens (n, d), and relative errors of what was read, over the
    answers' noise; `width` of them span all, groups share values."""

    tokens: Array
    columns: Array
    residual: float
    errors: tuple[float, ...] = ()
    width: int = 0
    group: Array = field(default_factory=lambda: np.zeros(0, dtype=int))

    def values(self, scene: Scene, shares: Array) -> Values:
        """O and V of all tokens together; V from M."""
        return _grouped(scene, self, shares)


def _found(
    scene: Scene, apart: Apart, spare: int, shares: Array, rng: np.random.Generator
) -> Asking[tuple[Found, Array]]:
    """Tokens at right angles until what heads write of them stops growing, and the cells they stood in."""
    H, r = apart.heads, len(scene.written)
    cells = independent(apart.sums, H + spare)
    start = np.column_stack([scene.written @ apart.x, rng.standard_normal((r, r - 1))])
    X = np.linalg.qr(start)[0].T @ scene.written * (CORE.edge * scene.radius)
    found = Found(apart.x[None], apart.columns.T[..., None], 0.0)
    for j in range(1, r):
        if (group := _complete(scene, found.columns, shares, r)) is not None:
            return replace(found, width=j, group=group), cells
        more = yield from _read(scene, found, X[j], cells, apart, shares, "main")
        O, new = found.columns, more.columns[..., -1]
        inside = [np.linalg.lstsq(o, p, rcond=None)[0] for o, p in zip(O, new, strict=True)]
        parts = zip(O, inside, new, strict=True)
        if max(np.linalg.norm(o @ z - p) / np.linalg.norm(p) for o, z, p in parts) < scene.limits.new:
            group = sharing(np.array(inside), scene.limits.shared_values)
            return replace(more, width=j, group=group), cells
        found = more
    return replace(found, width=r, group=np.zeros(H, dtype=int)), cells


def _read(scene: Scene, found: Found, x: Array, cells: Array, apart: Apart, shares: Array, phase: str) -> Asking[Found]:
    """With what heads write of one more token x (d,), one query for every cell."""
    written = yield from _written(scene, apart, cells, x, shares, phase)
    columns = np.concatenate([found.columns, written.columns.T[..., None]], axis=2)
    return replace(
        found,
        tokens=np.vstack([found.tokens, x]),
        columns=columns,
        residual=max(found.residual, written.residual),
        errors=(*found.errors, *written.errors),
    )


def telling(found: Found, values: Values) -> list[Array]:
    """The token (d,) that shows best what the tokens asked show worst in the groups' values; none if little is gained.

    Values that a group hardly makes of all tokens asked are what errors rise by.
    """
    length = np.linalg.norm(found.tokens, axis=1).max()
    shown = [V @ found.tokens.T / length for V in values.V]
    weak = np.stack([svd(part)[0][:, -1] @ V for part, V in zip(shown, values.V, strict=True)])
    raised = [1 / np.linalg.svd(part, compute_uv=False)[-1] for part in shown]
    # Of its own generator: whether one is looked for may hang on last digits.
    mixed = np.random.default_rng(len(found.tokens)).standard_normal((ROTARY.mixtures, len(weak))) * raised @ weak
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    after = [
        svd(np.concatenate([np.tile(part, (ROTARY.mixtures, 1, 1)), (mixed @ V.T)[..., None]], axis=2))[1][:, -1]
        for part, V in zip(shown, values.V, strict=True)
    ]
    least = np.min(after, axis=0)
    best = int(np.argmax(least))
    return [mixed[best] * length] if least[best] * max(raised) > ROTARY.worth else []


def _written(scene: Scene, apart: Apart, cells: Array, x: Array, shares: Array, phase: str) -> Asking[Written]:
    """P_h x of all heads. A token that a head hardly weighs, or hardly any other beside it, hides what that head
    writes: it is shortened and asked again, since scores and P_h x shrink with it.

    Norms of keys undo that. Turned around, a token that a head hardly weighs weighs most: what is read badly still is
    asked so, and every head is taken from where it shows better."""
    others = apart.sums[:, cells] - 1
    seen: list[Written] = []

    def look(share: float) -> Asking[float]:
        y = yield from respond(scene, apart.cells[cells], share * x, apart.q, "repair" if seen else phase)
        written = score_roots(y, scene.M @ (share * x), others, shares[:, None])
        seen.append(replace(written, columns=written.columns / share))
        weights = written.exps[:, None] / (written.exps[:, None] + others)
        hidden = np.minimum(weights, 1 - weights).max(axis=1) < scene.limits.readable
        strongest = float(np.abs(np.log(written.exps[hidden])).max(initial=0.0))
        return max(strongest / ROTARY.modest_score, 1e-300)

    yield from find_scale(look, 1.0, Steps(most=1.0, looks=ROTARY.shrinks))
    found = seen[-1]
    # Whether it is asked may hang on last digits.
    if len((yield from settle_list("token turned around", [x] * bool(found.errors.max() > ROTARY.fine_error)))):
        yield from look(-1.0)
        turned = seen[-1]
        # A score beyond all that are looked for leaves its curve far from the row space, and all columns off.
        rooted = turned.residual <= ROTARY.as_near * max(found.residual, scene.noise)
        better = (turned.errors < found.errors) & rooted
        found = replace(
            found,
            columns=np.where(better, turned.columns, found.columns),
            errors=np.where(better, turned.errors, found.errors),
            residual=max(turned.residual, found.residual) if rooted else found.residual,
        )
    return found


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


def _complete(scene: Scene, O: Array, shares: Array, rank: int) -> Array | None:
    """Groups if the columns O (H, outputs, j) found explain M already; a square fit proves nothing, so shares must
    coincide in groups."""
    H, _, j = O.shape
    if rank % j or H * j > len(scene.M) or (j == 1 and rank > H):
        return None
    flat = np.hstack(list(O * shares[:, None, None]))
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


def _grouped(scene: Scene, found: Found, shares: Array) -> Values:
    O, group, s = _spanned(found), found.group, found.width
    G = int(group.max()) + 1
    together = np.hstack([(O * shares[:, None, None])[group == g].sum(axis=0) for g in range(G)])
    V = np.linalg.lstsq(together, scene.M, rcond=None)[0]
    miss = np.linalg.norm(together @ V - scene.M) / np.linalg.norm(scene.M)
    if miss > max(1e-6, 1e5 * scene.noise):
        raise ModelMismatch(
            f"{len(O)} heads of {s} dimensions in {G} groups leave {miss:.1g} of what single tokens write unexplained: "
            "heads of unequal rank, or more than attention."
        )
    V = V.reshape(G, s, -1)
    error = max(found.residual, float(miss), _disagreement(scene, O, V, group, shares))
    for g in range(G):
        q, r = np.linalg.qr(V[g].T)
        V[g] = q.T
        O[group == g] = O[group == g] @ r.T
    # What is read of the tokens asked, as badly as these show the values of every group.
    read = scene.noise * float(np.sqrt(np.mean(np.square(found.errors or 0.0))))
    return Values(O, V, group, max(error, read * max(raised(found.tokens @ rows.T) for rows in V)))


def _spanned(found: Found) -> Array:
    """O (H, outputs, s) in coordinates of each group's values that are at right angles over all tokens asked."""
    if found.columns.shape[2] == found.width:
        return found.columns.copy()
    O = np.zeros((*found.columns.shape[:2], found.width))
    for g in range(int(found.group.max()) + 1):
        heads = np.flatnonzero(found.group == g)
        rows = svd(np.vstack(list(found.columns[heads])), full_matrices=False)[2][: found.width]
        O[heads] = found.columns[heads] @ rows.T
    return O


def _disagreement(scene: Scene, O: Array, V: Array, group: Array, shares: Array) -> float:
    """Relative error of what heads write: M split among all heads gives heads of a group the same V up to it."""
    H, s = len(O), O.shape[2]
    if H * s > len(scene.M):
        return 0.0
    flat = np.hstack(list(O * shares[:, None, None]))
    Z = np.linalg.lstsq(flat, scene.M, rcond=None)[0].reshape(H, s, -1)
    off = np.linalg.norm(Z - V[group]) / np.linalg.norm(V[group])
    # The split raises errors by the conditioning of what heads write together.
    return float(off / raised(flat))


def raised(rows: Array) -> float:
    """By how much a fit to these tokens or columns raises errors against orthogonal ones of the same length."""
    sizes = np.linalg.svd(rows, compute_uv=False)
    return float(np.sqrt((sizes**2).mean() * (sizes**-2).mean()))
