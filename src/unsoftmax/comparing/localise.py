"""Where scalar heads changed: values, which heads, entries, low rank, or everywhere. Layers have their own file."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.dense import Size, size_of_all_scores, size_of_scores
from unsoftmax.comparing.designs import pairs
from unsoftmax.comparing.findings import Finding
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.layers import localise_layer
from unsoftmax.comparing.low_rank import low_rank_change, polished
from unsoftmax.comparing.ranks import rank_below
from unsoftmax.comparing.reading import read_one
from unsoftmax.comparing.sparse import changed_entries, fitted
from unsoftmax.comparing.state import FRESH, Evidence
from unsoftmax.comparing.values import changed_values
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.sphere import sphere

PHASE = "heads"
_PER_HEAD = 8
"""Near ties that show one head alone: a changed head was found in 240 of 240, none was called so wrongly."""
_ENTRIES = 60
"""Queries a search for changed entries may take: about eight entries."""
_FEW = 14
"""Queries it may take where the change has rank one or two: one or two entries."""
_AT_MOST = 8
"""Entries of a recovered low-rank change at most for it to be called sparse."""
_LEFT = 0.02
"""Part of such a change (as amplitude) that may lie in other entries: noise."""
_LEFT_EXACT = 1e-6
"""The same for a target in float64: its square is the rounding of the sum."""
_OTHER = 0.3
"""Relative size of differences (root mean square over the reference's answers) beyond which it is another model."""


def localise(state: Evidence) -> Asking[Finding]:
    """Place the change in the reference's heads."""
    heads = state.heads
    if not heads.scalar:
        return (yield from localise_layer(state))
    values = yield from changed_values(state)
    if values is not None:
        return values
    if heads.count > heads.dim - 3:
        return _dense(state, None, {})
    found = yield from _which_heads(state)
    norm = state.plan.norm
    if len(found) == 1:
        said = yield from _one_head(state, found[0], norm)
        if said is not None:
            return said
    elif found:
        said = yield from _several_heads(state, found, norm)
        if said is not None:
            return said
    sizes = yield from _sizes(state, found)
    return _dense(state, tuple(found) or None, sizes)


def isolating(heads: Heads, h: int) -> Array:
    """Orthonormal basis (d, e) of the differences of tokens that the other heads do not see."""
    others = np.delete(heads.P[:, 0], h, axis=0)
    if not len(others):
        return np.eye(heads.dim)
    _, sizes, Vt = np.linalg.svd(others)
    rank = int((sizes > sizes[0] * 1e-12).sum())
    return np.asarray(Vt[rank:].T)


def _isolated(heads: Heads, h: int, n: int, norm: float, rng: np.random.Generator) -> Array:
    """Near ties (n, 2, d) of head h that differ along directions other heads do not write."""
    basis = isolating(heads, h)
    v = heads.P[h, 0] @ basis
    v = v / np.linalg.norm(v)
    b = norm * sphere(rng, (n, heads.dim))
    u = heads.key_directions(b)[h] @ basis
    a = sphere(rng, (n, basis.shape[1])) + v
    a *= norm / np.linalg.norm(a, axis=1, keepdims=True)
    w = u - np.outer(u @ v, v)
    gap = rng.uniform(-0.7, 0.7, n) - (a * u).sum(axis=1)
    a = a + (gap / np.maximum((w * u).sum(axis=1), 1e-300))[:, None] * w
    return np.stack([a @ basis.T + b, b], axis=1)


def _which_heads(state: Evidence) -> Asking[list[int]]:
    heads = state.heads
    if heads.count == 1:
        return [0]
    found = []
    for h in range(heads.count):
        X = state.plan.asked.on_grid(_isolated(heads, h, _PER_HEAD, state.plan.norm, state.rng), fine=True)
        made, y = yield from state.ask(X, PHASE)
        # Rounded tokens leave the others a little to write, which their own change would move.
        others = np.delete(heads.P[:, 0], h, axis=0)
        leak = np.abs((X[:, 0] - X[:, 1]) @ others.T).sum(axis=1)
        z = made.residual(y) / np.hypot(made.sd, leak)
        if statistics.tail(statistics.energy(z)) < state.alpha / heads.count:
            found.append(h)
    return found


def _one_head(state: Evidence, h: int, norm: float) -> Asking[Finding | None]:
    """Entries, or low rank, of the one head that changed."""
    heads, d = state.heads, state.heads.dim
    below = yield from rank_below(state, heads, h, norm, np.eye(d))
    if heads.stored is not None:
        entries = yield from changed_entries(state, h, _FEW if below == 3 else _ENTRIES)
        if entries:
            delta = np.zeros_like(heads.W)
            for (i, j), x in entries.items():
                delta[h, i, j] = x
            if (yield from _verified(state, delta)):
                return _sparse(state, h, entries, delta)
    if below is None:
        return None
    factors = yield from low_rank_change(state, heads, h, norm, np.eye(d), below)
    if factors is None or factors[0].shape[1] == 0:
        return None
    delta = np.zeros_like(heads.W)
    delta[h] = factors[0] @ factors[1]
    if not (yield from _verified(state, delta)):
        return None
    entries = _few(state, h, delta[h]) if heads.stored is not None else {}
    if entries:
        delta = np.zeros_like(heads.W)
        for (i, j), x in entries.items():
            delta[h, i, j] = x
        return _sparse(state, h, entries, delta)
    return _low_rank(state, [h], {h: factors[0].shape[1]}, delta)


def _few(state: Evidence, h: int, change: Array) -> dict[tuple[int, int], float]:
    """The entries of a recovered change that is nothing else; empty if it is more."""
    size = np.abs(change)
    order = np.argsort(size, axis=None)[::-1][:_AT_MOST]
    rest = float(np.linalg.norm(change)) ** 2 - np.cumsum(change.flat[order] ** 2)
    allowed = _LEFT_EXACT if state.plan.noise.arithmetic == "float64" else _LEFT
    enough = np.flatnonzero(rest <= (allowed * float(np.linalg.norm(change))) ** 2)
    if not len(enough):
        return {}
    places = [tuple(int(x) for x in np.unravel_index(k, change.shape)) for k in order[: int(enough[0]) + 1]]
    return fitted(state.heads, h, sorted(places), state.samples)  # type: ignore[arg-type]


def _several_heads(state: Evidence, found: list[int], norm: float) -> Asking[Finding | None]:
    """Low rank in several heads: each where the others do not write, then all together on further near ties."""
    heads = state.heads
    factors: dict[int, tuple[Array, Array]] = {}
    for h in found:
        basis = isolating(heads, h)
        below = yield from rank_below(state, heads, h, norm, basis)
        if below is None:
            return None
        one = yield from low_rank_change(state, heads, h, norm, basis, below)
        if one is None:
            return None
        factors[h] = one
    hidden = sum(U.shape[1] for U, _ in factors.values()) * (heads.count - 1)
    if hidden:
        X = state.plan.asked.on_grid(pairs(heads, hidden + 2 * len(found), norm, state.rng))
        yield from state.ask(X, "delta")
    delta = polished(heads, factors, state.samples)
    if not (yield from _verified(state, delta)):
        return None
    return _low_rank(state, found, {h: U.shape[1] for h, (U, _) in factors.items()}, delta)


def _verified(state: Evidence, delta: Array) -> Asking[bool]:
    """Whether the changed heads explain fresh near ties of theirs."""
    now = state.heads.with_scores(state.heads.W + delta)
    X = state.plan.asked.on_grid(pairs(now, FRESH, state.plan.norm, state.rng))
    return (yield from state.borne_out(now, X))


def _shape(heads: Heads, delta: Array) -> Array:
    return delta[0] if heads.count == 1 else delta


def _relative(heads: Heads, delta: Array) -> float:
    return float(np.linalg.norm(delta)) / (float(np.linalg.norm(heads.W)) or 1.0)


def _sparse(state: Evidence, h: int, entries: dict[tuple[int, int], float], delta: Array) -> Finding:
    shown = ", ".join(f"W[{i}, {j}] by {x:.3g}" for (i, j), x in sorted(entries.items())[:4])
    more = "" if len(entries) <= 4 else f" and {len(entries) - 4} more"
    where = "" if state.heads.count == 1 else f" of head {h}"
    return state.base.said(
        "sparse",
        f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}{where} changed: {shown}{more}.",
        heads=(h,),
        delta=_shape(state.heads, delta),
        rank=int(np.linalg.matrix_rank(delta[h])),
        evidence={"entries": [[h, i, j, x] for (i, j), x in sorted(entries.items())]},
    )


def _low_rank(state: Evidence, found: list[int], ranks: dict[int, int], delta: Array) -> Finding:
    where = "" if state.heads.count == 1 else f" of head {', '.join(map(str, found))}"
    rank = max(ranks.values())
    return state.base.said(
        "low rank",
        f"The scores{where} changed by rank {', '.join(str(k) for k in ranks.values())}: "
        f"{_relative(state.heads, delta):.2g} of |W|.",
        heads=tuple(found),
        delta=_shape(state.heads, delta),
        rank=rank,
        evidence={"relative change": _relative(state.heads, delta), "ranks": {str(h): k for h, k in ranks.items()}},
    )


def _sizes(state: Evidence, found: list[int]) -> Asking[dict[int, Size]]:
    """Norms of the changes of the heads found, from two dozen near ties each."""
    heads, sizes = state.heads, {}
    for h in found:
        b = sphere(state.rng, (24, heads.dim)) * state.plan.norm
        a = sphere(state.rng, (24, heads.dim)) * state.plan.norm
        u = heads.key_directions(b)[h]
        gap = state.rng.uniform(-0.7, 0.7, 24) - (a * u).sum(axis=1)
        a = a + (gap / np.maximum((u * u).sum(axis=1), 1e-300))[:, None] * u
        if len(found) > 1:
            X = state.plan.asked.on_grid(_isolated(heads, h, 24, state.plan.norm, state.rng), fine=True)
        else:
            X = state.plan.asked.on_grid(np.stack([a + b, b], axis=1))
        made, y = yield from state.ask(X, PHASE)
        sizes[h] = size_of_scores(heads, h, read_one(heads, h, made, y))
    return sizes


def _dense(state: Evidence, found: tuple[int, ...] | None, sizes: dict[int, Size]) -> Finding:
    X, y, sd = state.samples[0]
    truth = state.plan.noise.reference.double(X)
    gap = float(np.sqrt(np.mean((y - truth) ** 2) / max(float(np.mean(truth**2)), 1e-300)))
    facts: dict[str, object] = {"relative difference of answers": gap}
    every = size_of_all_scores(state.heads, X, y - truth, sd) if X.shape[1] == 2 else None
    if every is not None and state.heads.count > 1:
        facts["scores of all heads"] = every.facts()
        if every.low > max((size.high for size in sizes.values()), default=0.0):
            # More changed than near ties of single heads show: in other heads, or where others write.
            sizes, found = {}, None
    if sizes:
        facts["scores"] = {str(h): size.facts() for h, size in sizes.items()}
    every = every if not sizes else None
    largest = max((size.estimate for size in (*sizes.values(), *([every] if every else []))), default=math.inf)
    if gap > _OTHER and not largest < _OTHER:
        words = f"The target is another model: its answers are {gap:.2g} of their size away from the reference's."
        return state.base.said("different", words, heads=found, evidence=facts)
    where = "" if state.heads.count == 1 or found is None else f" of head {', '.join(map(str, found))}"
    how = f" by {largest:.2g} of |W|" if math.isfinite(largest) else ""
    words = f"The scores{where} changed{how}; neither a few entries nor a low rank explain it."
    known = [*sizes.values(), *([every] if every else [])]
    if known:
        low, high = min(size.low for size in known), max(size.high for size in known)
        words += f" The relative change lies between {low:.2g} and {high:.2g}."
    return state.base.said("dense", words, heads=found, evidence=facts)
