"""From what was read to the model, its notes and its claims.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Outcome
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.kind import Kind
from unsoftmax.learners.rotary.queries import Queries
from unsoftmax.learners.rotary.turns import Turns
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Alibi, Positions, Rope
from unsoftmax.models.weighing import Weighing
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec


class NearlyError(ModelMismatch):
    """Keys are nearly, and not quite, what the answers' noise leaves of linear ones."""


def outcome(
    reader: Reader,
    turns: Turns,
    keys: Keys,
    queries: Queries,
    kind: Kind,
    cap: float | None,
    spec: OracleSpec,
    spread: float = 1.0,
) -> Outcome:
    """The layer in the oracle's number format, heads that share keys beside each other; `spread` is that of the scores
    a cap was read from."""
    scene, values = reader.scene, reader.values
    order = np.lexsort((values.group, turns.group))
    group = turns.group[order]
    K, Q, V = (scene.of_tokens(rows) for rows in (keys.K[group], queries.Q[order], values.V[values.group[order]]))
    found, c = _features(keys, queries, group, order), np.zeros((len(order), spec.dim))
    # What a query's bias adds to the scores stands in c wherever a LayerNorm's beta may be part of it.
    folded = scene.norm == "pre" and not found.normed
    c = np.einsum("hrd,hr->hd", K, found.query_bias) if folded else c
    model = AttentionLayer(
        K,
        Q,
        c,
        values.O[order],
        V,
        scene.constant,
        residual=scene.residual,
        norm=scene.norm,
        eps=scene.eps or 0.0,
        positions=_positions(reader, turns, order),
        features=None if folded else found,
        weighing=Weighing(cap, None if reader.sinks is None else reader.sinks[order], kind.window),
    ).astype(spec.dtype)
    # A cap shows by s^3 / 3 c^2: an error e of scores of size s is 3/2 e (c / s)^2 of the cap.
    bend = 0.0 if cap is None else 1.5 * (cap / spread) ** 2
    return Outcome(model, (_found(model),), allows=Allowance(_precision(reader, keys, queries, bend)))


def require_far(model: AttentionLayer, kind: Kind, stated: float) -> None:
    """The sequence that was asked for a window is the longest one: what was read from short ones must foretell it."""
    if kind.far is None:
        return
    tokens, answer = kind.far
    written = answer - (tokens[:, -1] if model.residual else 0.0)
    gap = float(np.abs(model(tokens) - answer).max() / max(np.sqrt((written**2).mean()), 1e-300))
    if gap > max(stated, min(ROTARY.farthest_gap, ROTARY.long_gap * stated)):
        raise ModelMismatch(
            f"short sequences are explained, and a sequence of {tokens.shape[1]} tokens is not (off by {gap:.1g}): the "
            "number of tokens matters (small weights that are dropped, the largest few kept, a temperature by length), "
            "or far tokens follow another law (distances that are clipped, frequencies that change). Declare the "
            "length up to which the layer is wanted with max_length."
        )


def _positions(reader: Reader, turns: Turns, order: Array) -> Positions | None:
    if reader.slopes is not None:
        return Alibi(reader.slopes[order])
    return Rope(turns.theta) if turns.theta.any() else None


def _features(keys: Keys, queries: Queries, group: Array, order: Array) -> Features:
    if keys.form is None or keys.eps is None or queries.form is None or queries.eps is None:
        return Features(keys.bias[group], queries.bias[order])
    forms = keys.form[group], queries.form[order], keys.eps[group], queries.eps[order]
    return Features(keys.bias[group], queries.bias[order], *forms)


def _precision(reader: Reader, keys: Keys, queries: Queries, bend: float) -> Claim:
    """What the noise of the answers leaves in the model: the reads' own gain, times how the fits raise it."""
    weights = float(np.sqrt(np.mean(np.square(reader.gain), axis=0))[0])
    # What the noise leaves in keys is in the equations of queries, too.
    rise = weights * (queries.error + keys.error * (1 + queries.raised))
    noise = reader.scene.noise * rise
    # An error of what heads write is the same in all reads, and in proportion to the weights.
    written = reader.values.error * weights * queries.condition
    # What heads write more also reaches the small weights of others, and their logs: at most so far, it is a bound.
    reached = reader.values.error * rise
    known = max(ROTARY.outside_law * max(noise, written), reached)
    if reader.scene.exact and keys.form is None and keys.misfit > known:
        raise NearlyError(
            f"keys are off by {keys.misfit:.1g} of their size where answers as exact as these leave {known:.1g} at "
            f"most: scores are nearly, and not quite, those of tokens and their distance (a small "
            "bias per distance, frequencies that differ by head, a soft cap far beyond the scores, or another law)."
        )
    bound = max(ROTARY.stated_over_estimate, ROTARY.cap_bound * bend) * max(noise, written, keys.misfit)
    bound = max(bound, reached)
    return Claim(RELATIVE_ERROR, bound, statement="from the noise of the answers and the conditioning of the probes")


def _found(model: AttentionLayer) -> str:
    kept = "with" if model.residual else "without"
    name = "LayerNorm" if model.norm == "pre" else "RMSNorm"
    norm = "no norm" if model.norm is None else f"{name} before (eps {model.eps:.3g})"
    window = f"no window up to {ROTARY.farthest_window} tokens" if model.window is None else f"window {model.window}"
    return (
        f"{model.heads} heads in {model.kv_groups} groups of shared keys and values, {model.head_dim} dimensions each, "
        f"{_order(model)}{_extras(model)}, {window}, {kept} a residual, {norm}."
    )


def _extras(model: AttentionLayer) -> str:
    norms = ", norms of keys and queries" if model.features is not None and model.features.normed else ""
    cap = norms if model.softcap is None else f"{norms}, scores capped at {model.softcap:.6g}"
    return cap if model.sinks is None else f"{cap}, a sink per head"


def _order(model: AttentionLayer) -> str:
    if not isinstance(model.positions, Rope):
        return "no positions" if model.positions is None else "a slope per step of distance (ALiBi)"
    base = model.positions.base
    ladder = f"base {base:.6g}" if base is not None else "frequencies of no ladder"
    return f"rotary positions ({ladder}, {2 * len(model.positions.turning)} rows turn)"
