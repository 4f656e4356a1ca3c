"""Equivalence tests on fresh queries -> certificate. One plan per class of models: its count and its check.

plan              what a plan is, and what it finds
numbers           one number per sequence: which of the next two decides
values            exact answers: single tokens, random sequences, near ties
ties              the near ties of these, for any model
powers            kernels that are 0 at 0, whose weights may cancel
precision         noisy answers, against the precision that the learner states
heads             several heads: near ties of every head at its own scale; decides the certificate of MultiHead
head_ties         these ties, how far an error of a head moves them, and what gaps then say of it
explained         the same by attention maps and gradients
best_head         what these, or values within a tolerance, leave of one head, whatever its stated error
rays              attention in front of an unknown network
heads_behind      several heads in front of one
networks          ReLU networks of one vector
layers            vector answers
small_weights     the smallest weights that their tokens allow
far_below         what a faint token adds, by the sequence without it
stacks            several layers
blocks            the attention of a block, from behind its network
tokens            token ids
output            output layers of language models
circuits          one-layer language models
labels            labels instead of values
sent              single tokens, random sequences, and long ones as users send them
gaps              gaps of answers and what they are relative to
stated            how far the weights may be off, from the gaps of fresh answers
constants         what was measured or chosen for single answers
constants_models  the same for heads, networks and layers

A new class of models is registered in `PLANS`. A class that is not there is verified as its oracle's answers suggest:
ids by `tokens`, vectors by `layers`, numbers by `numbers`.
"""

from __future__ import annotations

from dataclasses import replace

from unsoftmax.learners.core.base import Allowance, Asking, Forecast
from unsoftmax.learners.core.reductions import as_values
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Model
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.multi_head_transformer import MultiHeadTransformer
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.token_layer import TokenLayer
from unsoftmax.models.transformer import Transformer
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.verify import (
    blocks,
    circuits,
    explained,
    heads,
    heads_behind,
    labels,
    layers,
    networks,
    numbers,
    output,
    rays,
    stacks,
    tokens,
)
from unsoftmax.verify.plan import Checked, Count, Plan
from unsoftmax.verify.stated import joined
from unsoftmax.verify.ties import near_ties

__all__ = ["PLANS", "Checked", "Plan", "check", "interval", "joined", "near_ties", "plan_of", "queries"]

PLANS: dict[type[Model], Plan] = {
    OutputLayer: output.PLAN,
    TokenLayer: circuits.PLAN,
    AttentionStack: stacks.PLAN,
    AttentionBehind: rays.PLAN,
    HeadsBehind: heads_behind.PLAN,
    LayerBehind: blocks.PLAN,
    ReluNetwork: networks.PLAN,
    MultiHead: heads.PLAN,
    KernelHead: numbers.KERNELS,
    Transformer: numbers.BEHIND_NETWORK,
    MultiHeadTransformer: numbers.BEHIND_NETWORK,
}
"""The plan of every class that does not follow from what its oracle answers."""


def plan_of(model: type[Model] | None, spec: OracleSpec) -> Plan:
    """How a model of this class, None if it is not known, is verified on an oracle of this spec."""
    if spec.kind == "membership":
        return labels.PLAN
    for known in () if model is None else model.__mro__:
        if known in PLANS:
            return PLANS[known]
    if spec.vocabulary is not None:
        return tokens.PLAN
    return numbers.PLAN if spec.outputs is None else layers.PLAN


def interval(forecast: Forecast, spec: OracleSpec) -> Count:
    """Fewest and most fresh queries that verifying the model of such a forecast takes."""
    if forecast.verification is not None:
        return forecast.verification, forecast.verification
    spec = as_values(spec) if spec.kind in EXPLAINED else spec
    return plan_of(forecast.model, spec).count(spec, forecast.heads)


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks where nothing is known of the model's class."""
    return interval(Forecast(), spec)[0]


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance | None = None) -> Asking[Checked]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised.

    `allows` is what the learner says of its model; labels are compared as near the boundary, and values as closely, as
    it permits. A learner that states its precision under noise is held to it.
    """
    allows = allows or Allowance()
    by_values = plan_of(type(model), as_values(spec) if spec.kind in EXPLAINED else spec).check
    if isinstance(model, (SingleHead, LowRankHead)) and spec.outputs is None and spec.kind != "membership":
        if spec.kind in EXPLAINED:
            values = replace(as_values(spec), kind="value")
            return explained.one_head(model, spec, allows, by_values(model, values, seed, allows))
        if spec.tolerance > 0 and spec.link is None:
            return explained.one_head(model, spec, allows, by_values(model, spec, seed, allows))
    return by_values(model, spec, seed, allows)
