"""From what was read to the model, its notes and its claims."""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import RELATIVE_ERROR, Outcome
from unsoftmax.learners.rotary.keys import Keys
from unsoftmax.learners.rotary.kind import Kind
from unsoftmax.learners.rotary.queries import Queries
from unsoftmax.learners.rotary.turns import Turns
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Rope
from unsoftmax.models.weighing import Weighing
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec

_SLACK = 400.0
"""Bound over estimate: relative errors of long sequences are some ten times those of parameters, since averages of many
tokens are short; twenty more cover the spread of the reads."""


def outcome(reader: Reader, turns: Turns, keys: Keys, queries: Queries, kind: Kind, spec: OracleSpec) -> Outcome:
    """The layer in the oracle's number format, heads that share keys beside each other."""
    scene, values = reader.scene, reader.values
    order = np.lexsort((values.group, turns.group))
    group = turns.group[order]
    model = AttentionLayer(
        keys.K[group],
        queries.Q[order],
        np.zeros((len(order), spec.dim)),
        values.O[order],
        values.V[values.group[order]],
        scene.constant,
        residual=scene.residual,
        norm=None if scene.eps is None else "rms",
        eps=scene.eps or 0.0,
        positions=Rope(turns.theta),
        features=Features(keys.bias[group], queries.bias[order]),
        weighing=Weighing(window=kind.window),
    ).astype(spec.dtype)
    return Outcome(model, notes=(_found(model),), claims=(_precision(reader, keys, queries),))


def _precision(reader: Reader, keys: Keys, queries: Queries) -> Claim:
    """What the noise of the answers leaves in the model: the reads' own gain, times how the fits raise it."""
    reads = float(np.sqrt(np.mean(np.square(reader.gain))))
    noise = reader.scene.noise * reads * max(queries.condition, keys.condition)
    bound = _SLACK * (noise + keys.misfit + reader.values.error)
    return Claim(RELATIVE_ERROR, bound, statement="from the noise of the answers and the conditioning of the probes")


def _found(model: AttentionLayer) -> str:
    kept = "with" if model.residual else "without"
    norm = "no norm" if model.norm is None else f"RMSNorm before (eps {model.eps:.3g})"
    assert isinstance(model.positions, Rope)
    base = model.positions.base
    ladder = f"base {base:.6g}" if base is not None else "frequencies of no ladder"
    turning = 2 * len(model.positions.turning)
    window = "" if model.window is None else f", window {model.window}"
    return (
        f"{model.heads} heads in {model.kv_groups} groups of shared keys and values, {model.head_dim} dimensions each, "
        f"rotary positions ({ladder}, {turning} rows turn){window}, {kept} a residual, {norm}."
    )
