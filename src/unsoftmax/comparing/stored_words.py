"""What is said of fitted arrays: a few entries, a low rank, or a size; which heads; which array if several would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.constants_stored import STORED
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.state import Evidence
from unsoftmax.comparing.stored_fit import Fitted
from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Finding, Verdict

_VECTORS = ("v", "w_o", "constant", "values", "own_values")
"""Arrays that are vectors of values, of which no rank is said."""
_BY_HEAD = ("c", "v")
"""Arrays that hold one vector for each head, of which no rank is said either."""
_SMOOTHING = 10.0 ** -np.arange(0.0, 7.0, 0.5)
"""Sizes over the largest entry below which entries are drawn to zero, one after the other."""
_VALUES = (*_VECTORS, "V", "O")
"""Arrays that hold what is written, not where it is read."""


@dataclass(frozen=True, eq=False)
class _Shape:
    """One array's change: how many entries and what rank stand above its error, None where that is too many to say."""

    name: str
    change: Array
    relative: float
    measure: str
    """What the relative size is a part of."""
    entries: int | None
    rank: int | None
    heads: tuple[int, ...] | None
    sure: bool
    """Whether the change stands above its error, so that its numbers are worth giving."""

    @property
    def numbers(self) -> int:
        """Numbers that describe the change: what a simpler explanation has fewer of."""
        if self.entries is not None:
            return self.entries
        rows = as_matrix(self.name, self.change)
        return self.rank * sum(rows.shape) if self.rank is not None else self.change.size

    @property
    def words(self) -> str:
        if self.entries is not None:
            places = [tuple(int(i) for i in at) for at in _largest(self.change, self.entries)]
            shown = ", ".join(f"{self.name}[{', '.join(map(str, at))}] by {self.change[at]:.3g}" for at in places[:4])
            more = "" if self.entries <= 4 else f" and {self.entries - 4} more"
            return f"{shown}{more}"
        how = "" if self.rank is None else f" by rank {self.rank}"
        return f"{self.name}{how} ({self.relative:.2g} {self.measure})"


def said(state: Evidence, fits: list[Fitted], known: Reference | None = None) -> Finding | None:
    """The simplest of the fits that explain the answers; where two are as simple, both are named.

    None if none of them changes an array. `known`: the reference with arrays that it may lack.
    """
    reference = known or state.plan.noise.reference
    described = [_standing([_shape(reference, fit, name) for name in fit.names]) for fit in fits]
    order = sorted((i for i in range(len(fits)) if described[i]), key=lambda i: _numbers(described[i]))
    if not order:
        return None
    first = order[0]
    best = described[first]
    rivals = [described[i] for i in order if _numbers(described[i]) == _numbers(best)]
    sure = [part for part in best if all(part.name in [p.name for p in other] for other in rivals)]
    names = " or ".join(" and ".join(part.name for part in parts) for parts in rivals)
    rank = max((p.rank for p in best if p.rank is not None), default=None)
    facts: dict[str, Any] = {
        "matrix": names,
        "relative change": {part.name: part.relative for part in best},
        "rank": rank,
        "directions not seen": _blind(fits[first]),
    }
    return state.base.said(
        _verdict(best),
        _sentence(best, names if len(rivals) > 1 else "", fits[first], reference),
        heads=tuple(sorted({h for part in best for h in part.heads or ()})) or None,
        delta=_of_scores(reference, best, fits[first]),
        rank=rank,
        changes={part.name: part.change for part in sure if part.sure},
        evidence=facts,
    )


def _standing(parts: list[_Shape | None]) -> list[_Shape]:
    """Arrays that changed: those whose change stands above its error, if there are any."""
    changed = [part for part in parts if part is not None]
    return [part for part in changed if part.sure] or changed


def _numbers(parts: list[_Shape]) -> int:
    return sum(part.numbers for part in parts)


def _sentence(best: list[_Shape], rivals: str, fit: Fitted, reference: Reference) -> str:
    words = " and ".join(part.words for part in best)
    words = f"{rivals} (either would do): {words}" if rivals else words
    count = _blind(fit)
    seen = f", up to {count} direction{'s' if count > 1 else ''} of it that no answer shows" if count else ""
    if len(fit.names) > 2 and len(fit.names) == len(reference.weights):
        return f"No one and no two arrays explain the change; the nearest weights that do differ in {words}{seen}."
    return f"Changed: {words}{seen}; the rest of the reference is unchanged."


def _verdict(best: list[_Shape]) -> Verdict:
    if len(best) == 1:
        part = best[0]
        if _base(part.name) in _VECTORS or (_base(part.name) in _VALUES and part.rank is None):
            return "values"
        if part.entries is not None:
            return "sparse"
    if all(part.rank is not None for part in best):
        return "low rank"
    return "values" if all(_base(part.name) in _VALUES for part in best) else "dense"


def _shape(reference: Reference, fit: Fitted, name: str) -> _Shape | None:
    """None where the array did not change."""
    change, stored = fit.changes[name], reference.weights[name]
    floor = STORED.unchanged * float(np.linalg.norm(stored))
    if float(np.linalg.norm(change)) <= floor:
        return None
    noise = EXPLAINING.above_noise * max(1.0, fit.left) * fit.errors[name] + floor
    relative = float(np.linalg.norm(change)) / (float(np.linalg.norm(stored)) or 1.0)
    noise += STORED.derivative_share * float(np.linalg.norm(change)) if _blind(fit) else 0.0
    lean = _leanest(change, fit.unseen.get(name))
    count = int((np.abs(lean) > noise).sum())
    kept = np.where(np.abs(lean) > noise, lean, 0.0)
    clear = float(np.linalg.norm(change)) > STORED.clear * noise
    few = (
        clear
        and 0 < count <= min(STORED.sparse_entries, change.size // 2)
        and float(np.linalg.norm(lean - kept)) <= noise
    )
    few = few and not _interchangeable(kept, fit.unseen.get(name))
    rows = as_matrix(name, change)
    sizes = np.linalg.svd(rows, compute_uv=False)
    rank = int((sizes > noise).sum()) if stored.ndim > 1 and _base(name) not in _BY_HEAD else 0
    low = clear and 0 < rank <= max(1, min(rows.shape) // EXPLAINING.low_rank_part)
    change = kept if few else change
    rank = int(np.linalg.matrix_rank(as_matrix(name, kept))) if few and rank else rank
    heads = None
    if stored.ndim == 3 or (stored.ndim == 2 and _base(name) in _BY_HEAD):
        by_head = np.linalg.norm(change.reshape(len(change), -1), axis=1)
        heads = tuple(int(h) for h in np.flatnonzero(by_head > noise)) or None
    return _Shape(
        name,
        change,
        relative,
        "of its size" if np.any(stored) else "where it was 0",
        count if few else None,
        rank if rank and (few or low) else None,
        heads,
        float(np.linalg.norm(change)) > noise,
    )


def _leanest(change: Array, unseen: Array | None) -> Array:
    """The change with fewest entries among those that answer alike: moved along directions that no answer shows.

    Iteratively reweighted least squares (Chartrand and Yin 2008): small entries weigh most.
    """
    if unseen is None or not len(unseen):
        return change
    N, x = unseen.reshape(len(unseen), -1), change.ravel()
    size = float(np.abs(x).max())
    for smoothing in _SMOOTHING:
        weight = 1 / (x**2 + (smoothing * size) ** 2)
        x = x - N.T @ np.linalg.solve((N * weight) @ N.T, N @ (weight * x))
    return np.asarray(x.reshape(change.shape))


def _interchangeable(change: Array, unseen: Array | None) -> bool:
    """Whether another entry would show in answers just as one of these does: where a network is linear on all tokens
    that may be asked, any entry of a row stands for any other, and the wrong one had been named."""
    if unseen is None or not len(unseen):
        return False
    N, places = unseen.reshape(len(unseen), -1), np.flatnonzero(change)
    # Columns of the projection on what answers show: entries, in their places, and all entries.
    shown = np.eye(change.size)[:, places] - N.T @ N[:, places]
    sizes = np.sqrt(np.maximum(1 - (N**2).sum(axis=0), 0.0))
    alike = (np.abs(shown) >= (1 - STORED.derivative_share) * sizes[:, None] * sizes[places]) & (
        sizes > STORED.derivative_share
    )[:, None]
    return bool(np.any(alike.sum(axis=0) > 1))


def _blind(fit: Fitted) -> int:
    return sum(len(part) for part in fit.unseen.values())


def _base(name: str) -> str:
    """K of "layer.0.K"."""
    return name.rsplit(".", 1)[-1]


def _largest(change: Array, count: int) -> Array:
    """Places (count, axes) of the largest entries, in order."""
    order = np.sort(np.argsort(np.abs(change), axis=None, kind="stable")[::-1][:count])
    return np.stack(np.unravel_index(order, change.shape), axis=1)


def as_matrix(name: str, change: Array) -> Array:
    """The change as the one matrix that frameworks store: rows of all heads, or columns where heads write."""
    if change.ndim == 3 and _base(name) == "O":
        return change.transpose(1, 0, 2).reshape(change.shape[1], -1)
    return change.reshape(-1, change.shape[-1]) if change.ndim > 1 else change[None]


def _of_scores(reference: Reference, best: list[_Shape], fit: Fitted) -> Array | None:
    """Change of W where it is known: directions that no answer shows, and a norm's own arrays, leave it open."""
    if reference.model is None or not any(part.name in ("W", "K", "Q") for part in best):
        return None
    if _blind(fit) or (len(fit.names) > 1 and getattr(reference.model, "norm", None) is not None):
        return None
    before = getattr(reference.model, "W", None)
    if before is None:
        return None
    weights = reference.model.parameters()
    moved = {part.name: weights[part.name].astype(np.float64) + part.change for part in best}
    return np.asarray(type(reference.model).from_parameters(weights | moved).W - before)  # type: ignore[attr-defined]
