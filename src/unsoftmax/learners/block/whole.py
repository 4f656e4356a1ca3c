"""The whole program: the readout, tokens that write nothing, tables, values, and then as for a layer.

Theory: docs/theory/attention-layer.md, "Behind a network".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.block.fits import fit_tokens, moved_values, rough_values
from unsoftmax.learners.block.infinity import ENDLESS, Infinity, read_out
from unsoftmax.learners.block.quiet import find_quiet
from unsoftmax.learners.block.scene import far_scene
from unsoftmax.learners.block.table import read_tables
from unsoftmax.learners.block.values import find_eps, find_spans, read_spans, values_of
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.kind import Kind, find_kind
from unsoftmax.learners.rotary.llama import explained, heads_of
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.spec import OracleSpec


def block(spec: OracleSpec, normed: bool, preset: str, rng: np.random.Generator) -> Program:
    """The attention of a pre-norm block, or of a one-layer language model behind its final norm."""
    _require_endless(spec)
    kind = yield from find_kind(spec, rng)
    if kind.sinks:
        raise NotIdentifiable(
            "copies of a token change the answer of a block: sinks take a share of the weight. Behind a network they "
            "are not learned; ask the layer itself."
        )
    far = yield from read_out(spec, normed, rng)
    if far is None:
        raise NotIdentifiable(
            f"{spec.outputs} answers do not show all {spec.dim} directions of the stream: heads are told apart by "
            "where they write. Ask for hidden states, or for more logits than there are dimensions."
        )
    plan = PLANS[preset]
    reader = yield from _reader(far, min(spec.domain.length_limit, kind.reach), rng)
    heads = yield from heads_of(reader, kind, plan, rng)
    outcome = yield from explained(heads, spec, kind, plan, rng)
    assert isinstance(outcome.model, AttentionLayer)
    model = LayerBehind(outcome.model, far.readout.astype(spec.dtype), normed)
    return replace(outcome, model=model, notes=(*outcome.notes, _found(far, spec, kind)))


def _require_endless(spec: OracleSpec) -> None:
    if spec.domain.norm_limit < 2 * ENDLESS * np.sqrt(spec.dim):
        raise DomainError(
            f"a block's attention is read at last tokens of norm {ENDLESS:.0e} and more, where its network drops out, "
            f"and max_norm is {spec.domain.max_norm}; ask the layer itself."
        )
    if spec.tolerance > 0:
        raise ModelMismatch("a network stands behind attention, and beside endless tokens declared noise hides all.")


def _reader(far: Infinity, longest: float, rng: np.random.Generator) -> Asking[Reader]:
    """Weights of all heads from one answer, once it is known what heads write."""
    quiet = yield from find_quiet(far, rng)
    tables = yield from read_tables(far, quiet, 2 if far.normed else 1, rng)
    rough = yield from find_spans(far, quiet, tables, rng)
    fits = yield from fit_tokens(far, tables[0], rough, rough_values(far, quiet, rough), "fair")
    spans = yield from read_spans(far, tables, rough, fits, rng)
    fits = yield from fit_tokens(far, tables[0], spans, moved_values(fits, spans), "full")
    eps = yield from find_eps(far, tables[0], spans)
    values = values_of(spans, fits)
    O, V, kept = yield from settle("values", values.O, values.V, eps)
    values = replace(values, O=O, V=V)
    return Reader((yield from far_scene(far, values, float(kept), longest)), values)


def _found(far: Infinity, spec: OracleSpec, kind: Kind) -> str:
    top = "a final RMSNorm and a linear readout" if far.normed else "a linear readout"
    order = " Positions that act on empty query tokens are taken for a query bias." if kind.order == "bias" else ""
    digits = f"{far.noise:.0e}"
    return (
        f"A network stands behind attention, then {top} of {spec.outputs} numbers; it was not read, and the constant "
        f"that attention adds cannot be told from it. Answers at endless query tokens leave {digits} of what attention "
        f"writes in {spec.dtype}.{order}"
    )
