"""Where a layer with vector answers changed: scores of which heads, values, by low rank or everywhere."""

from __future__ import annotations

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.dense import interval
from unsoftmax.comparing.findings import Finding
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.layer_scores import low_rank_scores
from unsoftmax.comparing.layer_sizes import sized_scores
from unsoftmax.comparing.layer_values import changed_projection
from unsoftmax.comparing.lora import named_factors
from unsoftmax.comparing.reading import Reading, read_all
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Verdict

_OTHER = 0.3
"""Relative difference of what heads write, beyond which it is another model."""


def localise_layer(state: Evidence) -> Asking[Finding]:
    """Place the change in the scores or values of a layer's heads."""
    heads = state.heads
    if 2 * heads.count > len(heads.constant):
        words = f"The layer differs; its {len(heads.constant)} outputs are too few to tell {heads.count} heads apart."
        return state.base.said("unexplained", words)
    read = _readings(state)
    gap = _gap(state)
    found = _changed_heads(state, read)
    if _values_differ(state):
        if gap <= _OTHER:
            said = yield from changed_projection(state)
            if said is not None:
                return said
        return (yield from _dense(state, found, gap, values=True))
    if found and gap <= _OTHER:
        delta = yield from low_rank_scores(state, found)
        if delta is not None:
            return _low_rank(state, delta)
    return (yield from _dense(state, found, gap, values=False))


def _readings(state: Evidence) -> Reading:
    pairs = [part for part in state.samples if part[0].shape[1] == 2]
    X, y, sd = (np.concatenate([part[i] for part in pairs]) for i in range(3))
    return read_all(state.heads, X, y, sd)


def _changed_heads(state: Evidence, read: Reading) -> list[int]:
    found = []
    for h in range(state.heads.count):
        use = np.isfinite(read.sd[h])
        if statistics.tail((read.D[h][use] / read.sd[h][use]) ** 2) < state.alpha / state.heads.count:
            found.append(h)
    return found


def _singles(state: Evidence) -> tuple[Array, Array, Array]:
    parts = [part for part in state.samples if part[0].shape[1] == 1]
    return tuple(np.concatenate([part[i] for part in parts]) for i in range(3))  # type: ignore[return-value]


def _values_differ(state: Evidence) -> bool:
    X, y, sd = _singles(state)
    z = (y - state.plan.noise.reference.double(X)) / sd
    return min(statistics.tail(statistics.energy(z)), statistics.tail_of_one_output(z)) < state.alpha


def _gap(state: Evidence) -> float:
    """Relative difference of what the heads write, on near ties and on single tokens: the larger."""
    truth, gaps = state.plan.noise.reference.double, []
    for X, y, _ in (state.samples[0], state.samples[1]):
        written = truth(X) - (X[:, -1] if state.heads.residual else 0)
        gaps.append(float(np.sqrt(np.mean((y - truth(X)) ** 2) / max(float(np.mean(written**2)), 1e-300))))
    return max(gaps)


def _low_rank(state: Evidence, delta: dict[int, tuple[Array, Array]]) -> Finding:
    heads = state.heads
    change = np.zeros_like(heads.W)
    for h, (U, M) in delta.items():
        change[h] = U @ M
    matrix, changes = named_factors(heads, change)
    rank = max(U.shape[1] for U, _ in delta.values())
    relative = float(np.linalg.norm(change) / np.linalg.norm(heads.W))
    where = ", ".join(map(str, delta))
    words = f"{matrix} changed by rank {rank} (heads {where}): {relative:.2g} of the scores' |W|."
    facts = {
        "matrix": matrix,
        "relative change": relative,
        "ranks": {str(h): U.shape[1] for h, (U, _) in delta.items()},
    }
    return state.base.said(
        "low rank", words, heads=tuple(delta), delta=change, rank=rank, changes=changes, evidence=facts
    )


def _dense(state: Evidence, found: list[int], gap: float, *, values: bool) -> Asking[Finding]:
    """Sizes of the changes with their intervals, by head for the scores."""
    heads = state.heads
    facts: dict[str, object] = {"relative difference of answers": gap}
    if gap > _OTHER:
        said = f"The target is another layer: what it writes is {gap:.2g} of its size away from the reference's."
        return state.base.said("different", said, heads=tuple(found) or None, evidence=facts)
    words = []
    if 2 * heads.count < heads.dim - 2:
        sizes, offsets, found = yield from sized_scores(state)
        facts["scores"] = {str(h): sizes[h].facts() for h in found}
        facts["key offsets"] = {str(h): offsets[h].facts() for h in found}
    if found:
        low, high = (f([getattr(sizes[h], end) for h in found]) for f, end in ((min, "low"), (max, "high")))
        words.append(f"the scores of {len(found)} of {heads.count} heads (by {low:.2g} to {high:.2g} of |W|)")
    if values:
        size = _size_of_values(state, heads)
        facts["values"] = size
        words.append(f"the values (by {size['low']:.2g} to {size['high']:.2g} of their size)")
    what = " and ".join(words) or "the layer"
    verdict: Verdict = "dense" if found or not values else "values"
    said = f"{what[0].upper()}{what[1:]} changed everywhere, not by low rank."
    return state.base.said(verdict, said, heads=tuple(found) or None, evidence=facts)


def _size_of_values(state: Evidence, heads: Heads) -> dict[str, float]:
    """|dM| / |M| for M = sum_h P_h, from single tokens and their partners: a changed constant cancels between them."""
    truth = state.plan.noise.reference.double
    parts = [part for part in state.samples if part[0].shape[1] == 1]
    one, more, turned = parts[:3]
    X, r = np.concatenate([one[0], more[0]]) - turned[0], np.concatenate([one[1], more[1]]) - turned[1]
    r = r - (truth(np.concatenate([one[0], more[0]])) - truth(turned[0]))
    noise = np.concatenate([one[2], more[2]]) ** 2 + turned[2] ** 2
    scale = heads.dim / (X[:, 0] ** 2).sum(axis=1)
    norm = float(np.linalg.norm(heads.P.sum(axis=0))) or 1.0
    return interval((r**2).sum(axis=1) * scale, noise.sum(axis=1) * scale, norm).facts()
