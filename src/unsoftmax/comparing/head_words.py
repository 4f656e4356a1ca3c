"""What is said of changed scores of scalar heads: entries, a low rank, or a size, and what was tried."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.constants_stored import STORED
from unsoftmax.comparing.dense import Size, gap_of, size_of_all_scores
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.ranks import highest
from unsoftmax.comparing.sparse import Place, fitted
from unsoftmax.comparing.state import Evidence
from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Finding


def few_entries(state: Evidence, delta: Array) -> Finding | None:
    """A recovered change (H, d, d) that is nothing but a few entries, said as such; None if it is more."""
    if state.heads.stored is None:
        return None
    size = np.abs(delta)
    order = np.argsort(size, axis=None, kind="stable")[::-1][: STORED.sparse_entries]
    rest = float(np.linalg.norm(delta)) ** 2 - np.cumsum(delta.flat[order] ** 2)
    noise = state.plan.noise
    allowed = (
        EXPLAINING.left_elsewhere_exact
        if noise.arithmetic == "float64" and not noise.tolerance
        else EXPLAINING.left_elsewhere
    )
    enough = np.flatnonzero(rest <= (allowed * float(np.linalg.norm(delta))) ** 2)
    if not len(enough):
        return None
    places = [_place(int(k), delta.shape) for k in order[: int(enough[0]) + 1]]
    return sparse(state, fitted(state.heads, sorted(places), state.samples, delta))


def _place(index: int, shape: tuple[int, ...]) -> Place:
    h, i, j = (int(x) for x in np.unravel_index(index, shape))
    return h, i, j


def sparse(state: Evidence, delta: Array) -> Finding:
    """The entries of dW (H, d, d) that are not zero."""
    one = state.heads.count == 1
    entries = [(_place(int(k), delta.shape), float(delta.flat[k])) for k in np.flatnonzero(delta)]
    shown = ", ".join(f"W[{', '.join(map(str, at[1:] if one else at))}] by {x:.3g}" for at, x in entries[:4])
    more = "" if len(entries) <= 4 else f" and {len(entries) - 4} more"
    which = tuple(sorted({at[0] for at, _ in entries}))
    where = "" if one else f" of head {', '.join(map(str, which))}"
    return state.base.said(
        "sparse",
        f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}{where} changed: {shown}{more}.",
        heads=which,
        delta=_shape(state.heads, delta),
        rank=max(int(np.linalg.matrix_rank(delta[h])) for h in which),
        evidence={"entries": [[*at, x] for at, x in entries]},
    )


def low_rank(state: Evidence, ranks: dict[int, int], delta: Array) -> Finding:
    """Heads with their ranks."""
    where = "" if state.heads.count == 1 else f" of head {', '.join(map(str, ranks))}"
    relative = float(np.linalg.norm(delta)) / (float(np.linalg.norm(state.heads.W)) or 1.0)
    return state.base.said(
        "low rank",
        f"The scores{where} changed by rank {', '.join(str(k) for k in ranks.values())}: {relative:.2g} of |W|.",
        heads=tuple(ranks),
        delta=_shape(state.heads, delta),
        rank=max(ranks.values()),
        evidence={"relative change": relative, "ranks": {str(h): k for h, k in ranks.items()}},
    )


def _shape(heads: Heads, delta: Array) -> Array:
    return delta[0] if heads.count == 1 else delta


def dense(state: Evidence, found: tuple[int, ...] | None, sizes: dict[int, Size]) -> Finding:
    """Sizes of the changes with their intervals, and what does not explain them."""
    X, y, sd = state.samples[0]
    truth = state.plan.noise.reference.double(X)
    gap = gap_of(y, truth)
    facts: dict[str, object] = {"relative difference of answers": gap.plain}
    every = size_of_all_scores(state.heads, X, y - truth, sd) if X.shape[1] == 2 else None
    tried = _tried(state.heads, found)
    if every is not None and state.heads.count > 1:
        facts["scores of all heads"] = every.facts()
        if every.low > max((size.high for size in sizes.values()), default=0.0):
            # More changed than near ties of single heads show: in other heads, or where others write.
            sizes, found = {}, None
    if sizes:
        facts["scores"] = {str(h): size.facts() for h, size in sizes.items()}
    known = [*sizes.values()] or ([every] if every else [])
    largest = max((size.estimate for size in known), default=math.inf)
    if gap.scaled_only and not largest < EXPLAINING.other_model:
        return state.base.said("dense", gap.words, heads=found, evidence=facts)
    if gap.plain > EXPLAINING.other_model and not largest < EXPLAINING.other_model:
        words = f"The target is another model: its answers are {gap.plain:.2g} of their size away from the reference's."
        return state.base.said("different", words, heads=found, evidence=facts)
    where = "" if state.heads.count == 1 or found is None else f" of head {', '.join(map(str, found))}"
    how = f" by {largest:.2g} of |W|" if largest and math.isfinite(largest) else ""
    words = f"The scores{where} changed{how}; {tried}."
    if known:
        low, high = min(size.low for size in known), max(size.high for size in known)
        between = f"lies between {low:.2g} and {high:.2g}" if math.isfinite(high) else f"is at least {low:.2g}"
        words += f" The relative change {between}."
    return state.base.said("dense", words, heads=found, evidence=facts)


def _tried(heads: Heads, found: tuple[int, ...] | None) -> str:
    """Which structures were looked for; others may be there."""
    if heads.count > heads.dim - 3:
        return "in so few dimensions heads are not told apart"
    if found is None:
        return "no head alone shows it"
    low = f"no rank up to {highest(heads.dim)}"
    if len(found) > 1:
        return f"{low} in each of them explains it"
    return f"{low} explains it" if heads.stored is None else f"no few entries and {low} explain it"
