"""Which entries changed? A set of indices is asked with weights g_i and with g_i w_i: the ratio names a lone index.

Rows first, at one random b, then the columns of every row found. Seven queries for one entry at any d, about seven for
each of several: sets that hold more than one are halved, and only one half is asked.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.noise import group
from unsoftmax.comparing.reading import as_asked, read_one
from unsoftmax.comparing.scales import Sample
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes
from unsoftmax.verify.constants import VERIFY

PHASE = "locate"
Place = tuple[int, int, int]
"""Head, row and column of an entry of W."""
Ask = Callable[[Array], Asking[tuple[float, float]]]
"""weights (n,) -> sum_i weights_i x_i and its standard deviation, for one query."""


class TooMany(Exception):
    """More queries than a sparse change would take."""


def sparse_vector(ask: Ask, n: int, rng: np.random.Generator) -> Asking[dict[int, float]]:
    """Non-zero entries of an unknown x (n,), by index."""
    # Not +-1: equal entries would cancel exactly.
    g = rng.choice([-1.0, 1.0], n) * rng.uniform(0.6, 1.4, n)
    found: dict[int, float] = {}
    waiting = [(np.arange(n), *(yield from ask(g)))]
    while waiting:
        chosen, total, sd = waiting.pop()
        if abs(total) < EXPLAINING.above_noise * sd:
            continue
        if len(chosen) == 1:
            found[int(chosen[0])] = total / g[chosen[0]]
            continue
        lone = yield from _lone(ask, chosen, g, total, sd, rng)
        if lone is not None:
            found[lone] = total / g[lone]
            continue
        order = rng.permutation(chosen)
        left, right = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        part, error = yield from ask(_on(left, g))
        rest = float(np.hypot(sd, error)) + EXPLAINING.sent_rounding * max(abs(total), abs(part))
        waiting += [(right, total - part, rest), (left, part, error)]
    return found


def _on(chosen: Array, g: Array) -> Array:
    weights = np.zeros(len(g))
    weights[chosen] = g[chosen]
    return weights


def _lone(ask: Ask, chosen: Array, g: Array, total: float, sd: float, rng: np.random.Generator) -> Asking[int | None]:
    """The index if a single one of `chosen` is not zero: named by a ratio, confirmed by one random question."""
    w = 1 + np.arange(len(chosen)) / len(chosen)
    weighted = _on(chosen, g)
    weighted[chosen] *= w
    second, error = yield from ask(weighted)
    off = EXPLAINING.ratio_deviations * (error + 2 * sd) / abs(total) + EXPLAINING.sent_rounding
    near = np.flatnonzero(np.abs(w - second / total) <= off)
    if len(near) != 1 or off > EXPLAINING.ratio_gap / len(chosen):
        return None
    index = int(chosen[near[0]])
    check = np.zeros(len(g))
    check[chosen] = rng.uniform(0.5, 1.5, len(chosen)) * rng.choice([-1.0, 1.0], len(chosen))
    third, error = yield from ask(check)
    expected = check[index] * total / g[index]
    return (
        index
        if abs(third - expected) <= EXPLAINING.above_noise * (error + 2 * sd) + EXPLAINING.sent_rounding * abs(total)
        else None
    )


def changed_entries(state: Evidence, h: int, most: int) -> Asking[Array | None]:
    """The change (H, d, d) in the entries of dW_h that changed; None if they are more than `most` queries show."""
    heads, rng = state.heads, state.rng
    budget = [most]
    d = heads.dim
    b0 = rng.choice([-1.0, 1.0], d) * rng.uniform(0.6, 1.4, d)
    entry = (float(np.linalg.norm(heads.W[h])) or 1.0) / d
    at_b0 = _Questions(state, h, budget, b0 * np.sqrt(EXPLAINING.entry_length / (entry * d)), np.ones(d), entry)
    try:
        yield from at_b0.measure_anchor()
        rows = yield from sparse_vector(at_b0.along_rows, d, rng)
        free = np.ones(d)
        free[list(rows)] = 0.0
        found: list[Place] = []
        for i in rows:
            in_row = _Questions(state, h, budget, b0, free, entry, row=i)
            columns = yield from sparse_vector(in_row.along_columns, d, rng)
            found += [(h, i, j) for j in columns]
    except TooMany:
        return None
    return fitted(heads, sorted(found), state.samples)


def fitted(heads: Heads, places: list[Place], samples: list[Sample], near: Array | None = None) -> Array:
    """The change (H, d, d) in the entries at these places, from all two-token answers at once (Gauss-Newton from the
    entries of a change `near`, or from none)."""
    delta = np.zeros_like(heads.W)
    if not places:
        return delta
    if near is not None:
        at = tuple(np.array(places).T)
        delta[at] = near[at]
    pairs = [(X, y, sd) for X, y, sd in samples if X.shape[1] == 2]
    X, y, sd = (np.concatenate([part[i] for part in pairs]) for i in range(3))
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    h, i, j = np.array(places).T
    for _ in range(EXPLAINING.entry_steps):
        now = heads.with_scores(heads.W + delta)
        t = now.gaps(X)[h].T
        gain = (a @ heads.P[h, 0].T) / (2 + np.exp(t) + np.exp(-t)) / sd[:, None]
        lhs = gain * a[:, i] * b[:, j]
        size = np.maximum(np.linalg.norm(lhs, axis=0), 1e-300)
        delta[h, i, j] += np.linalg.lstsq(lhs / size, (y - now(X)) / sd, rcond=None)[0] / size
    return delta


class _Questions:
    """a'dW b with a made large along v by an anchor that is orthogonal to W b: it adds no score."""

    def __init__(
        self, state: Evidence, h: int, budget: list[int], b: Array, free: Array, entry: float, row: int | None = None
    ) -> None:
        self.state, self.h, self.budget, self.b, self.free, self.entry, self.row = state, h, budget, b, free, entry, row
        self.heads: Heads = state.heads
        self.anchored = (0.0, 0.0)

    def _ask(self, a: Array, b: Array) -> Asking[tuple[float, float]]:
        if self.budget[0] < 1:
            raise TooMany
        self.budget[0] -= 1
        state = self.state
        X = state.plan.asked.on_grid(np.stack([a + b, b])[None], fine=True)
        made = group(PHASE, X, state.plan.noise, state.plan.constant, state.rng)
        y = yield Probes(X, phase=PHASE)
        state.samples.append((X, y, made.sd))
        read = as_asked(read_one(self.heads, self.h, made, y), b[None])
        return float(read.D[0]), float(read.sd[0])

    def _anchor(self, b: Array, size: float) -> Array:
        """A multiple of v on the free rows, orthogonal there to the key direction at b."""
        u = self.heads.key_directions(b[None])[self.h, 0] * self.free
        n = self.heads.P[self.h, 0] * self.free
        n = n - (n @ u) / max(float(u @ u), 1e-300) * u
        return np.asarray(size * n / max(float(np.linalg.norm(n)), 1e-300))

    def measure_anchor(self) -> Asking[None]:
        """What the anchor alone shows at b, subtracted from every row question."""
        self.anchored = yield from self._ask(self._anchor(self.b, float(np.linalg.norm(self.b))), self.b)

    def _signed(self, a: Array) -> float:
        return 1.0 if a @ self.heads.P[self.h, 0] >= 0 else -1.0

    def along_rows(self, weights: Array) -> Asking[tuple[float, float]]:
        """sum_i weights_i (dW b)_i."""
        gap = abs(float(weights @ self.heads.key_directions(self.b[None])[self.h, 0]))
        size = float(np.linalg.norm(weights))
        scale = min(VERIFY.widest_score / max(gap, 1e-300), float(np.linalg.norm(self.b)) / size)
        anchor = self._anchor(self.b, float(np.linalg.norm(self.b)))
        sign = self._signed(weights)
        D, sd = yield from self._ask(weights * scale + sign * anchor, self.b)
        return (D - sign * self.anchored[0]) / scale, float(np.hypot(sd, self.anchored[1])) / scale

    def along_columns(self, weights: Array) -> Asking[tuple[float, float]]:
        """sum_j dW_ij weights_j for the row i of these questions; the anchor stays off rows that changed."""
        e = np.zeros(self.heads.dim)
        assert self.row is not None
        e[self.row] = 1.0
        size = float(np.linalg.norm(weights))
        gap = abs(float(weights @ self.heads.W[self.h][self.row]))
        scale = min(VERIFY.widest_score / max(gap, 1e-300), EXPLAINING.entry_length**2 / (size * self.entry))
        b, a = weights * np.sqrt(scale / size), e * np.sqrt(scale * size)
        anchor = self._anchor(b, float(np.linalg.norm(a)))
        D, sd = yield from self._ask(a + self._signed(a) * anchor, b)
        return D / scale, sd / scale
