"""From what was read to the model, its notes and its claims.

Theory: docs/theory/attention-layer.md, "A real layer", method.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.keys import Keys
from unsoftmax.learners.layer.ranges import Heads
from unsoftmax.learners.layer.scores import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec

ALWAYS_SHARED = (
    f"in {CORE.draws} scans what single tokens move was not what so many heads write: of at least {{}} heads two have "
    "the same scores, one has none, or more than softmax attention acts (a network, weights that are not zero far "
    "below the largest). Such heads cannot be told apart by hard attention."
)


def outcome(keys: Keys, reader: Reader, constant: Array, spec: OracleSpec, **rest: Any) -> Outcome:
    """The layer in the oracle's number format; factors of unequal rank are padded with zeros."""
    heads = reader.heads
    r, s = max(len(k) for k in keys.K), max(len(z) for z in heads.Z)
    K, Q = (np.stack([_padded(x, r) for x in part]) for part in (keys.K, keys.Q))
    O = np.stack([_padded(o.T, s).T for o in heads.O])
    V = np.stack([_padded(z, s) for z in heads.Z])
    model = AttentionLayer(K, Q, np.stack(keys.c), O, V, constant, **rest).astype(spec.dtype)
    return Outcome(model, (_found(heads, model), *_folded(model)), allows=Allowance(_precision(reader, keys)))


def _precision(reader: Reader, keys: Keys) -> Claim:
    """What the noise of the answers leaves in the model, from the conditioning of every read."""
    bound = LAYER.stated_over_noise * (reader.worst * keys.gain + reader.heads.error)
    # Logits are read at tokens for the strongest head: a weaker one is known as much worse, or not told from none.
    sizes = np.array([np.linalg.norm(Q) for Q in keys.Q])
    weakest = sizes[sizes > bound * sizes.max()].min(initial=sizes.max())
    bound *= float(sizes.max() / weakest) if weakest > 0 else 1.0
    # A c that is short against W q is known as much worse; one that is lost in the noise is none.
    if bound * keys.over_offset < 1:
        bound *= max(1.0, keys.over_offset)
    lost = (
        "; the noise leaves the weights undetermined in their weakest directions" if bound >= CORE.unknown_error else ""
    )
    statement = f"from the noise of the answers and the conditioning of the probes{lost}"
    return Claim(RELATIVE_ERROR, bound, statement=statement)


def _padded(rows: Array, n: int) -> Array:
    return np.vstack([rows, np.zeros((n - len(rows), rows.shape[1]))])


def _folded(model: AttentionLayer) -> list[str]:
    """Where parameters of the target went that answers do not show on their own."""
    if model.norm == "pre":
        return ["the norm's gamma and beta are folded into W, c, P and the constant, which act on x off its mean."]
    if model.norm == "rms":
        return ["the norm's gamma is folded into W, c and P."]
    if np.any(model.c):
        return ["c_h holds what the query bias adds to the scores; a key bias adds the same to all and does not show."]
    return []


def _found(heads: Heads, model: AttentionLayer) -> str:
    ranks = ", ".join(map(str, sorted({o.shape[1] for o in heads.O})))
    kept = "with" if model.residual else "without"
    norm = {None: "no LayerNorm", "pre": "LayerNorm before", "post": "LayerNorm after", "rms": "RMSNorm before"}[
        model.norm
    ]
    free = model.outputs - sum(o.shape[1] for o in heads.O)
    unseen = "; a head that writes nothing cannot be seen" if free >= heads.smallest else ""
    return f"{model.heads} heads, rank of P_h {ranks}, {kept} a residual, {norm}{unseen}."
