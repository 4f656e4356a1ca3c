"""QK-norm: keys and queries divided by their own root mean square. Features are read as keys are; maps follow.

A map behind a norm shows up to a factor, its gains by the pairs that turn, and its eps.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.absolute import read_absolute, read_features, require_quiet
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.limits import Limits
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.queries import Design, Queries, design_for, queries_at
from unsoftmax.learners.rotary.turns import Start, Turns
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array
from unsoftmax.solvers.normed_features import Normed, fit_normed

NORMED = "scores do not follow the length of tokens (norms of keys and queries, or positions far beyond the scores)"
"""What scores of the law "normed" show, in words."""


def read_normed(
    reader: Reader, begun: Start, plan: Plan, turning: bool, rng: np.random.Generator
) -> Asking[tuple[Turns, Keys, Queries]]:
    """Everything about scores behind norms of keys and queries."""
    s, d = reader.values.width, reader.scene.dim
    require_quiet(reader, NORMED)
    if s * d > ROTARY.largest_map:
        raise DomainError(f"QK-norm is learned for maps of up to {ROTARY.largest_map} entries (got {s} x {d}).")
    try:
        return (yield from _fitted(reader, begun, plan, turning, rng))
    except ModelMismatch as mismatch:
        least = min(size / log for size, log in reader.gain)
        if least > ROTARY.drowned_weight or not reader.scene.exact:
            raise
        raise NotIdentifiable(
            "scores behind norms of queries and keys, which tokens longer than their eps do not weaken, are so strong "
            f"that weights of {least:.0e} and less are read among others: rounding leaves nothing of their logs."
        ) from mismatch


def _fitted(
    reader: Reader, begun: Start, plan: Plan, turning: bool, rng: np.random.Generator
) -> Asking[tuple[Turns, Keys, Queries]]:
    s, d = reader.values.width, reader.scene.dim
    turns = yield from read_absolute(reader, begun, turning, None)
    n = int(np.ceil(ROTARY.equations * s * d / (s - 1)))
    read = yield from read_features(reader, turns, plan, n, None, rng)
    blocks = _blocks(turns)
    keys = [fit_normed(read.tokens, F, errors, blocks) for F, errors in zip(read.keys, read.errors, strict=True)]
    _require_fit(keys, "keys", reader.scene.limits)
    design = design_for(reader, turns, lambda g, z: keys[g].of(z), turns.A, plan, None)
    q = reader.scene.draw(np.eye(d), 0.9, rng, n)
    asked = yield from queries_at(design, q, _blocks_before(design, rng))
    queries = [fit_normed(asked.q, asked.A[:, h], asked.errors[:, h], blocks) for h in range(len(turns.group))]
    _require_fit(queries, "queries", reader.scene.limits)
    error = max(part.error for part in [*keys, *queries])
    return turns, _as_keys(keys, turns, error), _as_queries(queries, asked.condition)


def _require_fit(found: list[Normed], what: str, limits: Limits) -> None:
    misfit = max(part.misfit for part in found)
    if misfit > limits.fitted:
        raise ModelMismatch(
            f"scores do not follow the tokens' length, and {what} are not linear maps over their own root mean square "
            f"(they miss by {misfit:.1g}): a norm over several heads together, a LayerNorm, norms of one side only, "
            "biases behind them, or another law of scores."
        )


def _blocks(turns: Turns) -> list[Array]:
    """Rows among which the gauge acts: every turning pair, and all rows that do not turn."""
    pairs = [np.array([2 * k, 2 * k + 1]) for k in np.flatnonzero(turns.theta)]
    still = np.flatnonzero(turns.still)
    return [*pairs, still] if len(still) else pairs


def _blocks_before(design: Design, rng: np.random.Generator) -> Callable[[Array], Array]:
    """Sequences (n, repeats, m + 1, d) for query tokens: of random blocks, those best conditioned at each of them."""
    blocks = np.stack([design.reader.block(design.slots, rng) for _ in range(ROTARY.blocks)])
    turns = np.stack(design.R)
    # (groups, blocks, m, s): keys as they stand m..1 tokens before the last one.
    keys = [np.einsum("mab,nmb->nma", turns, design.key(g, blocks)) for g in range(design.groups)]
    values = [blocks @ V.T for V in design.reader.values.V]

    def before(q: Array) -> Array:
        z = np.zeros((len(q), design.repeats, design.slots + 1, q.shape[1]))
        for j, last in enumerate(q):
            own = [design.key(g, last) for g in range(design.groups)]
            cost = np.max([np.linalg.cond(k - xi) for k, xi in zip(keys, own, strict=True)], axis=0)
            # Weights are read from what tokens write beside the last one.
            written = zip(values, design.reader.values.V @ last, strict=True)
            cost *= np.max([np.linalg.cond(v - x) for v, x in written], axis=0)
            z[j, :, :-1], z[j, :, -1] = blocks[np.argsort(cost, kind="stable")[: design.repeats]], last
        return z

    return before


def _as_keys(found: list[Normed], turns: Turns, error: float) -> Keys:
    s = len(found[0].B)
    K, forms = np.stack([f.B for f in found]), np.stack([f.D for f in found])
    rows = [turns.A[:, turns.group == g].reshape(-1, s) for g in range(len(found))]
    condition = max(float(np.linalg.cond(part)) for part in rows)
    eps = np.array([f.e for f in found])
    return Keys(K, np.zeros(K.shape[:2]), turns.A, condition, 0.0, error, forms, eps)


def _as_queries(found: list[Normed], condition: float) -> Queries:
    Q = np.stack([f.B for f in found])
    eps = np.array([f.e for f in found])
    return Queries(Q, np.zeros(Q.shape[:2]), condition, 0.0, 0.0, np.stack([f.D for f in found]), eps)
