"""Scores themselves, not only their differences: one empty token in front, whose score is 0, is the yardstick.

With and without it, what is left of the weight against a token's own differs by e^(0 - s). Sinks, caps and norms of
keys need it; a key bias would give the empty token a score, and is refused.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.presets import Plan
from unsoftmax.learners.rotary.turns import Logs, Start, Turns, turns_of
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.probes.base import Array
from unsoftmax.solvers.capped import cap_of, unbent
from unsoftmax.solvers.shift_operator import pair_sizes, rotation
from unsoftmax.solvers.weighted import inverse_of, weighted


def require_quiet(reader: Reader, seen: str) -> None:
    """Absolute scores are read before query tokens that write nothing."""
    if not reader.quiet:
        raise NotIdentifiable(
            f"{seen}, and heads leave no {reader.values.width + 2} dimensions of tokens that write nothing, before "
            "which scores are read on their own: it cannot be known here. Heads that share values leave them."
        )


def absolute_scores(reader: Reader, block: Array, q: Array, between: int, phase: str) -> Asking[tuple[Array, Array]]:
    """Scores (n, H, m) of a block before every q (n, d), `between` empty tokens in between, and their errors for an
    error of 1 in every weight; 2 n queries."""
    n, (m, d) = len(q), block.shape
    parts = [np.broadcast_to(block, (n, m, d)), np.zeros((n, between, d)), q[:, None]]
    z = np.concatenate(parts, axis=1)
    a = yield from reader.before_quiet(z, m, phase)
    b = yield from reader.before_quiet(np.concatenate([np.zeros((n, 1, d)), z], axis=1), m, phase, skipped=1)
    return _scores(a, b)


def _scores(without: Array, behind: Array) -> tuple[Array, Array]:
    """-log of what the empty token in front adds to (1 - sum alpha) / alpha_i; and the errors of that."""
    left = [1 - weights.sum(axis=2, keepdims=True) for weights in (behind, without)]
    share = left[0] / behind - left[1] / without
    if not (share > 0).all():
        raise ModelMismatch("an empty token in front takes no weight: the heads found do not explain the answers.")
    errors = sum((1 + rest / part) / part for rest, part in zip(left, (behind, without), strict=True)) / share
    return np.asarray(-np.log(share)), np.asarray(errors)


def find_cap(reader: Reader, begun: Start) -> Asking[float]:
    """The soft cap from absolute scores of a block and of its half before two query tokens; eight queries."""
    whole, _ = yield from absolute_scores(reader, begun.block, begun.q[:2], 0, "pilot")
    half, _ = yield from absolute_scores(reader, begun.block / 2, begun.q[:2], 0, "pilot")
    cap = cap_of(whole, half)
    if cap is None:
        raise ModelMismatch(
            "scores bend as tokens are shortened, and neither as a soft cap c tanh(s / c) bends them nor as norms of "
            "keys do: biased keys beside either, weights that are not exp(score), or another law of scores."
        )
    return cap


def read_absolute(reader: Reader, begun: Start, turning: bool, cap: float | None) -> Asking[Turns]:
    """Turns, with scores (n, H, m) of every block; ceil((s + 1) / (m - 1)) blocks before all query tokens.

    Three sequences for every query token and block, four behind a cap, which differences do not survive; then two.
    """
    m, d = len(begun.block), reader.scene.dim
    bare = lambda t: t if cap is None else unbent(t, cap)  # noqa: E731

    def read(q: Array) -> Asking[list[Logs]]:
        found = []
        for block in begun.first(reader.values.width):
            scores, errors = yield from absolute_scores(reader, block, q, 0, "main")
            near = far = bare(scores)
            apart = errors
            if turning and cap is not None:
                far, moved = yield from absolute_scores(reader, block, q, 1, "main")
                far, apart = unbent(far, cap), errors + moved
            elif turning:
                parts = [np.broadcast_to(block, (len(q), m, d)), np.zeros((len(q), 1, d)), q[:, None]]
                weights = yield from reader.before_quiet(np.concatenate(parts, axis=1), m, "main")
                far, apart = np.log(np.maximum(weights, 1e-300)), errors + 1 / np.maximum(weights, 1e-300)
            found.append(Logs(block, near, errors, near, far, apart))
        return found

    return (yield from turns_of(reader, begun, turning, read))


@dataclass(frozen=True, eq=False)
class Read:
    """Tokens (n, d) as seen, their keys (G, n, s), and the errors (G, n) of these for an error of 1 in every weight."""

    tokens: Array
    keys: Array
    errors: Array


def read_features(
    reader: Reader, turns: Turns, plan: Plan, tokens: int, cap: float | None, rng: np.random.Generator
) -> Asking[Read]:
    """At least `tokens` tokens and their keys: least squares on absolute scores."""
    s, m = reader.values.width, len(turns.read[0].block)
    sharing = int(np.bincount(turns.group).min())
    few = min(len(turns.q), -(-s // sharing) + plan.queries)
    blocks, scores = [part.block for part in turns.read], [(part.fitted, part.errors) for part in turns.read]
    planned = list(turns.planned)
    while planned or len(blocks) * m < tokens:
        blocks.append(planned.pop(0) if planned else reader.block(m, rng))
        t, errors = yield from absolute_scores(reader, blocks[-1], turns.q[:few], 0, "main")
        scores.append((t if cap is None else unbent(t, cap), errors))
    back = [rotation(turns.theta, D, s).T for D in range(m, 0, -1)]
    keys, told = [], []
    for g in range(int(turns.group.max()) + 1):
        own = turns.group == g
        found = []
        for t, errors in scores:
            A, loud = turns.A[: len(t)][:, own].reshape(-1, s), turns.errors[: len(t), own]
            fits = [weighted(A, t[:, own, i].ravel(), (errors[:, own, i] + loud).ravel()) for i in range(m)]
            found += [(back[i] @ fit.x, fit.error) for i, fit in enumerate(fits)]
        keys.append([x for x, _ in found])
        told.append([error for _, error in found])
    seen = reader.scene.seen(reader.scene.tokens(np.vstack(blocks)))
    return Read(seen, np.array(keys), np.array(told))


def linear_keys(reader: Reader, turns: Turns, read: Read) -> Keys:
    """K (G, s, d) of keys that are linear in the tokens."""
    s, tokens = read.keys.shape[2], read.tokens
    inverses = [inverse_of(tokens, errors) for errors in read.errors]
    K = np.stack([(inverse @ F).T for inverse, F in zip(inverses, read.keys, strict=True)])
    each = zip(K, read.keys, read.errors, strict=True)
    misfit = max(float(np.linalg.norm((tokens @ k.T - F).T / e) / np.linalg.norm(F.T / e)) for k, F, e in each)
    if misfit > reader.scene.limits.linear:
        raise ModelMismatch(
            f"keys beside sinks or scores that bend are not linear in the tokens (they miss by {misfit:.1g}): a key "
            "bias, which gives empty tokens a score (remove it), or another law of scores."
        )
    told = zip(K, inverses, read.errors, strict=True)
    error = max(float(np.linalg.norm(inverse * e) / np.linalg.norm(k)) for k, inverse, e in told)
    A = turns.A.copy()
    for g in range(len(K)):
        size = pair_sizes(K[g])
        K[g] /= size[:, None]
        A[:, turns.group == g] *= size
    few = [A[:, turns.group == g].reshape(-1, s) for g in range(len(K))]
    condition = max(float(np.linalg.cond(part)) for part in few)
    return Keys(K, np.zeros(K.shape[:2]), A, condition, error, misfit)
