"""Where scalar heads changed: values, which heads, entries, low rank, or neither. Layers have their own file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.dense import Size, size_of_scores
from unsoftmax.comparing.designs import near_ties, pairs
from unsoftmax.comparing.head_words import dense, few_entries, low_rank, sparse
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.layers import localise_layer
from unsoftmax.comparing.low_rank import Search, polished
from unsoftmax.comparing.ranks import LowRank, rank_below
from unsoftmax.comparing.reading import read_one
from unsoftmax.comparing.sparse import changed_entries
from unsoftmax.comparing.state import Evidence
from unsoftmax.comparing.stored import changed_arrays, changed_offsets
from unsoftmax.comparing.values import changed_values
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.comparison import Finding

PHASE = "heads"


def localise(state: Evidence) -> Asking[Finding]:
    """Place the change in the reference's heads."""
    heads = state.heads
    if state.samples[0][0].shape[1] == 2:
        yield from _eased(state)
    if not heads.scalar:
        return (yield from localise_layer(state))
    values = yield from changed_values(state)
    if values is not None:
        return values
    if heads.count > heads.dim - 3:
        said = yield from changed_arrays(state)
        return dense(state, None, {}) if said is None else said
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
    return dense(state, tuple(found) or None, sizes)


def _eased(state: Evidence) -> Asking[None]:
    """Shorter tokens where the change shuts near ties: what is best to see a small change is too long for a large one.

    The first sample is then that of shorter ties, and those of longer tokens are left out: shut, they tell nothing.
    """
    made = state.plan
    reference, asked, rng = made.noise.reference, made.asked, state.rng
    norm = made.norm
    while norm > made.usual and _shut(state) > EXPLAINING.most_shut:
        norm = max(made.usual, norm / EXPLAINING.shorter)
        draw = lambda n, norm=norm: near_ties(reference, asked, n, norm, rng)  # noqa: E731
        constant = made.noise.constant(lambda draw=draw: draw(COMPARING.calibrated), rng)  # type: ignore[misc]
        state.plan = replace(made, norm=norm, constant=constant)
        yield from state.ask(draw(COMPARING.directions), PHASE)
        short = [
            part
            for part in state.samples[1:-1]
            if np.linalg.norm(part[0], axis=2).max() <= EXPLAINING.kept_length * norm
        ]
        state.samples[:] = [state.samples[-1], *short]


def _shut(state: Evidence) -> float:
    """Part of the near ties whose weights moved by more than a quarter."""
    X, y, _ = state.samples[0]
    moved = np.linalg.norm((y - state.plan.noise.reference.double(X)).reshape(len(X), -1), axis=1)
    most = np.linalg.norm(np.einsum("hod,bd->hbo", state.heads.P, X[:, 0] - X[:, 1]), axis=2).sum(axis=0)
    return float((moved > EXPLAINING.shut_move * most).mean())


def isolating(heads: Heads, h: int) -> Array:
    """Orthonormal basis (d, e) of the differences of tokens that the other heads do not see."""
    others = np.delete(heads.P[:, 0], h, axis=0)
    if not len(others):
        return np.eye(heads.dim)
    _, sizes, Vt = np.linalg.svd(others)
    rank = int((sizes > sizes[0] * EXPLAINING.rounding_cut).sum())
    return np.asarray(Vt[rank:].T)


def _writes_alone(heads: Heads, h: int) -> bool:
    """Whether a head writes where no other does."""
    v = heads.P[h, 0]
    return float(np.linalg.norm(v @ isolating(heads, h))) > EXPLAINING.alone * float(np.linalg.norm(v))


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
    for h in (h for h in range(heads.count) if _writes_alone(heads, h)):
        X = state.plan.asked.on_grid(
            _isolated(heads, h, EXPLAINING.ties_per_head, state.plan.norm, state.rng), fine=True
        )
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
    low = yield from rank_below(state, heads, h, norm, np.eye(d))
    if low is not None and low.steady:
        said = yield from changed_offsets(state)
        if said is not None:
            return said
    if heads.stored is not None:
        few = low is not None and low.rank <= EXPLAINING.few_rank
        entries = yield from changed_entries(
            state, h, EXPLAINING.few_entry_queries if few else EXPLAINING.entry_queries
        )
        if entries is not None and entries.any() and (yield from _verified(state, entries)):
            return sparse(state, entries)
    if low is None:
        return None
    search = Search(state, heads, h, norm, np.eye(d))
    checked = search.worth_checking(low.rank)
    found = yield from _low_rank_of_one(state, search, low.at, low.below, checked=checked)
    if found is None and not checked:
        found = yield from _low_rank_of_one(state, search, low.at[:0], low.below, checked=True)
    return found


def _low_rank_of_one(state: Evidence, search: Search, at: Array, most: int, *, checked: bool) -> Asking[Finding | None]:
    """The low-rank change of the head of a search, if it explains fresh near ties."""
    factors = yield from search.found(at, most, checked=checked)
    if factors is None or factors[0].shape[1] == 0:
        return None
    delta = np.zeros_like(search.heads.W)
    delta[search.h] = factors[0] @ factors[1]
    if 2 * factors[0].size <= EXPLAINING.most_refined:
        # Columns and rows one by one lose digits that all answers together have.
        parts, delta = polished(search.heads, {search.h: factors}, state.samples)
        factors = parts[search.h]
    if not (yield from _verified(state, delta)):
        return None
    return few_entries(state, delta) or low_rank(state, {search.h: factors[0].shape[1]}, delta)


def _several_heads(state: Evidence, found: list[int], norm: float) -> Asking[Finding | None]:
    """Low rank in several heads: each where the others do not write, then all together on further near ties."""
    heads = state.heads
    factors: dict[int, tuple[Array, Array]] = {}
    ranks: dict[int, LowRank] = {}
    for h in found:
        low = yield from rank_below(state, heads, h, norm, isolating(heads, h))
        if low is None:
            return None
        ranks[h] = low
    if all(low.steady for low in ranks.values()):
        said = yield from changed_offsets(state)
        if said is not None:
            return said
    for h, low in ranks.items():
        one = yield from Search(state, heads, h, norm, isolating(heads, h)).found(low.at, low.below, checked=True)
        if one is None:
            return None
        factors[h] = one
    hidden = sum(U.shape[1] for U, _ in factors.values()) * (heads.count - 1)
    if hidden:
        X = state.plan.asked.on_grid(pairs(heads, hidden + 2 * len(found), norm, state.rng))
        yield from state.ask(X, "delta")
    factors, delta = polished(heads, factors, state.samples)
    if not (yield from _verified(state, delta)):
        return None
    return few_entries(state, delta) or low_rank(state, {h: U.shape[1] for h, (U, _) in factors.items()}, delta)


def _verified(state: Evidence, delta: Array) -> Asking[bool]:
    """Whether the changed heads explain fresh near ties of theirs."""
    now = state.heads.with_scores(state.heads.W + delta)
    X = state.plan.asked.on_grid(pairs(now, EXPLAINING.fresh, state.plan.norm, state.rng))
    return (yield from state.borne_out(now, X))


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
