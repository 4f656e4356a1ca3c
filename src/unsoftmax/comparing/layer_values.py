"""A change of a layer's value projection V or of its output projection O, from single tokens.

One token x is answered with O V x: d of them give the change of the product, which either matrix alone could explain
where it is invertible; near ties, which weigh heads differently, tell which it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.comparison import Finding


def changed_projection(state: Evidence) -> Asking[Finding | None]:
    """A verdict if V alone or O alone changed; None if neither explains the answers."""
    heads = state.heads
    E, X, sd = _differences(state)
    rank = _rank(E, sd)
    if rank > len(E) // 2 and heads.dim > EXPLAINING.most_solved:
        return None
    norm = float(np.linalg.norm(X, axis=1).mean())
    _, spread, directions = np.linalg.svd(X, full_matrices=True)
    # Single tokens orthogonal to those asked (some were asked with both signs): together they span the space.
    rest = directions[int((spread > EXPLAINING.spanned * spread[0]).sum()) :] * norm
    if len(rest):
        yield from state.ask(state.plan.asked.on_grid(rest[:, None]), "delta")
        E, X, sd = _differences(state)
    dM = np.linalg.lstsq(X, E, rcond=EXPLAINING.rounding_cut)[0].T
    best: tuple[float, str, Heads, Array] | None = None
    for name, changed, change in _hypotheses(state, dM):
        left = _left(state, changed)
        if best is None or left < best[0]:
            best = (left, name, changed, change)
    assert best is not None
    left, name, changed, change = best
    if left > EXPLAINING.left_of_residual or not (yield from _verified(state, changed)):
        return None
    return _said(state, name, change, dM)


def _differences(state: Evidence) -> tuple[Array, Array, Array]:
    """Residuals (n, outputs) of all single tokens X (n, d), and their noise."""
    parts = [part for part in state.samples if part[0].shape[1] == 1]
    X, y, sd = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return y - state.plan.noise.reference.double(X), X[:, 0], sd


def _rank(E: Array, sd: Array) -> int:
    sizes = np.linalg.svd(E / sd, compute_uv=False)
    return int((sizes > EXPLAINING.values_above_noise * (np.sqrt(E.shape[0]) + np.sqrt(E.shape[1]))).sum())


def _hypotheses(state: Evidence, dM: Array) -> list[tuple[str, Heads, Array]]:
    """The layer with V alone changed so that sum_h O_h V_h changes by dM, and with O alone, from all answers at once:
    where the scores are the reference's they are linear in it."""
    heads = state.heads
    H, out, s = heads.O.shape
    O = heads.O.transpose(1, 0, 2).reshape(out, H * s)
    dV = np.linalg.lstsq(O, dM, rcond=EXPLAINING.rounding_cut)[0].reshape(heads.V.shape)
    written, given = [], []
    for X, y, sd in state.samples:
        mixed = (heads.weights(X).transpose(1, 0, 2) @ X).transpose(1, 0, 2) @ heads.V.transpose(0, 2, 1)
        weight = np.sqrt(1 / np.mean(sd**2, axis=1, keepdims=True))
        written.append(mixed.transpose(1, 0, 2).reshape(len(X), -1) * weight)
        given.append((y - state.plan.noise.reference.double(X)) * weight)
    found = np.linalg.lstsq(np.vstack(written), np.vstack(given), rcond=EXPLAINING.rounding_cut)[0].T
    dO = found.reshape(out, H, s).transpose(1, 0, 2)
    return [("V", replace(heads, V=heads.V + dV), dV), ("O", replace(heads, O=heads.O + dO), dO)]


def _left(state: Evidence, changed: Heads) -> float:
    """Part of the differences on sequences of several tokens that the changed layer leaves, as amplitude."""
    left = before = 0.0
    for X, y, sd in state.samples:
        if X.shape[1] > 1:
            left += float((((y - changed(X)) / sd) ** 2).mean(axis=1).sum())
            before += float((((y - state.heads(X)) / sd) ** 2).mean(axis=1).sum())
    return float(np.sqrt(left / max(before, 1e-300)))


def _verified(state: Evidence, changed: Heads) -> Asking[bool]:
    X = state.plan.asked.on_grid(sphere(state.rng, (EXPLAINING.fresh, 2, changed.dim)) * state.plan.norm)
    return (yield from state.borne_out(changed, X))


def _said(state: Evidence, name: str, change: Array, dM: Array) -> Finding:
    heads = state.heads
    sizes = np.linalg.svd(dM, compute_uv=False)
    floor = 1e-8 if state.plan.noise.arithmetic == "float64" else 1e-2
    rank = int((sizes > floor * sizes[0]).sum())
    relative = float(np.linalg.norm(change) / np.linalg.norm(getattr(heads, name)))
    facts = {"matrix": name, "relative change": relative, "rank": rank}
    by_head = np.linalg.norm(change.reshape(heads.count, -1), axis=1)
    which = tuple(int(h) for h in np.flatnonzero(by_head > 1e-3 * by_head.max()))
    if rank <= heads.dim // 4:
        words = f"{name} changed by rank {rank}: {relative:.2g} of its size; the scores are the reference's."
        return state.base.said("low rank", words, heads=which, rank=rank, changes={name: change}, evidence=facts)
    words = f"{name} changed by {relative:.2g} of its size; the scores are the reference's."
    return state.base.said("values", words, heads=which, changes={name: change}, evidence=facts)
