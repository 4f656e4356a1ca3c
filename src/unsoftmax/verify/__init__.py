"""Equivalence tests on fresh queries -> certificate. One file per kind of answer; `check` chooses."""

from __future__ import annotations

from unsoftmax.learners.core.base import Asking, Forecast, Precision
from unsoftmax.learners.core.reductions import as_values, only_values
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Model
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.verify import heads, heads_behind, labels, layers, networks, output, powers, rays, stacks, tokens, values
from unsoftmax.verify import precision as noisy
from unsoftmax.verify.stated import joined
from unsoftmax.verify.values import near_ties

__all__ = ["check", "interval", "joined", "near_ties", "queries"]


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    if spec.kind in EXPLAINED:
        return queries(as_values(spec))
    if spec.vocabulary is not None:
        return tokens.queries(spec)
    if spec.outputs is not None:
        return layers.queries(spec)
    return labels.queries(spec) if spec.kind == "membership" else values.queries(spec)


def interval(forecast: Forecast, spec: OracleSpec) -> tuple[int, int]:
    """Fewest and most fresh queries that verifying a model takes, as its learner's forecast says or as is usual."""
    usual = queries(spec)
    least = usual if forecast.verification is None else forecast.verification
    most = max(usual, least) if forecast.most_verification is None else forecast.most_verification
    return least, max(most, least)


def check(
    model: Model, spec: OracleSpec, seed: int, claims: tuple[Claim, ...] = (), precision: Precision | None = None
) -> Asking[Certificate]:
    """Ask fresh queries and compare: the claims of the certificate hold or they do not; nothing is raised.

    `claims` are what the learner says of its model; labels are compared as near the boundary, and values as closely,
    as these allow. A learner that states its `precision` under noise is held to it.
    """
    if spec.kind in EXPLAINED:
        return only_values(check(model, as_values(spec), seed, claims, precision))
    if isinstance(model, OutputLayer):
        return output.check(model, spec, seed, claims)
    if spec.vocabulary is not None:
        return tokens.check(model, spec, seed)
    if spec.kind == "membership":
        return labels.check(model, spec, seed, claims)
    if isinstance(model, AttentionStack):
        return stacks.check(model, spec, seed, claims)
    if isinstance(model, AttentionBehind):
        return rays.check(model, spec, seed, claims)
    if isinstance(model, HeadsBehind):
        return heads_behind.check(model, spec, seed)
    if isinstance(model, ReluNetwork):
        return networks.check(model, spec, seed, claims)
    if precision is not None:
        return noisy.check(model, spec, seed, precision)
    if spec.outputs is not None:
        return layers.check(model, spec, seed, claims)
    if isinstance(model, KernelHead) and model.kernel.zero_at_zero:
        return powers.check(model, spec, seed, claims)
    if isinstance(model, MultiHead):
        return heads.check(model, spec, seed, claims)
    return values.check(model, spec, seed, claims)
