"""Values of all directions: one fit of a few unknowns for every token, once it is known where heads write.

Theory: docs/theory/attention-layer.md, "Behind a network", values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.block.columns import Chosen, ask_before, choose
from unsoftmax.learners.block.infinity import Infinity, Level
from unsoftmax.learners.block.quiet import Quiet
from unsoftmax.learners.block.table import Table
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array

_FEW = 2
"""Cells before which a token is fitted, of 2 d numbers for H + G s unknowns."""

_STEPS = 12
"""Gauss-Newton steps of a token's fit at most: it starts within 1e-4 and ends after three."""


@dataclass(frozen=True, eq=False)
class Spans:
    """O (H, d, s) = P_h X for s tokens X (s, d) on the sphere; group (H,): who shares values."""

    X: Array
    O: Array
    group: Array
    misfit: float

    @property
    def width(self) -> int:
        return self.O.shape[2]

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1

    def values(self, v: Array) -> Array:
        """P_h x (H, d) of a token with values v (G s,)."""
        return np.einsum("hds,hs->hd", self.O, v.reshape(-1, self.width)[self.group])


@dataclass(frozen=True, eq=False)
class Fits:
    """V (G s, d): values of tokens, stacked by group; scores (H, d + 1): scores of front tokens over that of q, where
    they are affine in the token; misfit relative to the answers."""

    V: Array
    scores: Array
    misfit: float


def fit_tokens(far: Infinity, table: Table, spans: Spans, start: Array, level: Level) -> Asking[Fits]:
    """V in all directions: a fit per token to its answers before two cells, from V (G s, d) at the `start`."""
    d, chosen = far.dim, choose(table, _FEW)
    tokens = far.radius * np.vstack([np.eye(d), -np.ones(d) / np.sqrt(d)])
    Y = yield from ask_before(far, chosen, far.frozen(tokens), "main", level)
    fits = [_fitted(far, chosen, spans, y, start @ x) for x, y in zip(tokens, Y, strict=True)]
    V = np.linalg.lstsq(tokens, np.stack([fit.v for fit in fits]), rcond=None)[0].T
    right = np.column_stack([tokens, np.ones(len(tokens))])
    scores = np.linalg.lstsq(right, np.stack([fit.scores for fit in fits]), rcond=None)[0].T
    return Fits(V, scores, max(fit.misfit for fit in fits))


def rough_values(far: Infinity, quiet: Quiet, spans: Spans) -> Array:
    """V (G s, d) stacked by group, to the accuracy of the rough maps."""
    parts = []
    for rough in quiet.rough:
        see = far.visible(rough.q)
        seen = see @ spans.O
        wanted = see @ rough.D @ spans.X.T
        alpha = np.linalg.lstsq(seen.reshape(len(seen), -1).T, wanted.reshape(-1), rcond=None)[0]
        weighed = alpha[:, None, None] * seen
        together = np.hstack([weighed[spans.group == g].sum(axis=0) for g in range(spans.groups)])
        parts.append(np.linalg.lstsq(together, see @ rough.D, rcond=None)[0])
    # Neither map shows its own query token, and these are at right angles.
    q = quiet.rough[0].q / far.radius
    return np.asarray(parts[0] + np.outer(parts[1] @ q, q))


def moved_values(fits: Fits, spans: Spans) -> Array:
    """V (G s, d) as seen from the tokens of other spans, which are the unit there."""
    V = fits.V.reshape(spans.groups, spans.width, -1)
    return np.vstack([np.linalg.solve(part @ spans.X.T, part) for part in V])


@dataclass(frozen=True, eq=False)
class _Fit:
    v: Array
    scores: Array
    misfit: float


def _fitted(far: Infinity, chosen: Chosen, spans: Spans, y: Array, v: Array) -> _Fit:
    """v (G s,) = V_g x of a token and its scores (H,) from its answers y (C, d) before the cells."""
    see, own, others = far.visible(chosen.table.q), chosen.table.own, chosen.others
    H, C = others.shape
    written = see @ spans.values(v).T
    # Given v, answers are linear in g = 1 / (1 + E + others): E g = 1 - (1 + others) g.
    g = np.linalg.lstsq(own - written * (1 + others[:, 0]), y[0] - written.sum(axis=1), rcond=None)[0]
    scores = np.log(np.maximum(1 / np.maximum(g, 1e-12) - 1 - others[:, 0], 1e-6))
    O = (see @ spans.O).transpose(1, 0, 2)
    member = np.eye(spans.groups)[spans.group]
    misfit = np.inf
    for _ in range(_STEPS):
        E, written = np.exp(scores), see @ spans.values(v).T
        rows, gaps = [], []
        for c in range(C):
            g = 1 / (1 + E + others[:, c])
            gaps.append(y[c] - (own + written * E) @ g)
            by_value = np.einsum("dhs,h,hg->dgs", O, E * g, member).reshape(len(own), -1)
            rows.append(np.hstack([(written - (own + written * E) * g) * g * E, by_value]))
        gap = np.concatenate(gaps)
        before, misfit = misfit, float(np.linalg.norm(gap) / np.linalg.norm(y))
        if misfit > 0.5 * before:
            break
        step = np.linalg.lstsq(np.vstack(rows), gap, rcond=None)[0]
        scores, v = scores + np.clip(step[:H], -1, 1), v + step[H:]
    return _Fit(v, scores, misfit)
