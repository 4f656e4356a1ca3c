"""What stands before a number format: every learner, its targets by seed, and how an oracle is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import unsoftmax as us
from unsoftmax.models.explanations import attention, gradient

Written = Callable[[Any], Any]
"""Numbers as the format writes them."""

L, M = us.learners, us.models
EXPLAIN = {"gradient": gradient, "attention": attention}


def numbers(model: Any, written: Written, said: dict[str, Any], **rest: Any) -> Any:
    """Tokens in; one number, or a vector, out."""

    def service(tokens: Any, counts: Any = None) -> Any:
        return written(model(tokens, counts))

    service.accepts_counts = getattr(model, "accepts_counts", True)  # type: ignore[attr-defined]
    if getattr(model, "outputs", None) is not None:
        rest = {**rest, "outputs": model.outputs}
    return us.oracle(service, model.dim, **{**rest, **said})


def explained(model: Any, written: Written, said: dict[str, Any], *, kind: Any) -> Any:
    """The number with its gradient or attention weights, all in the format."""
    explain, inside = EXPLAIN[kind], getattr(model, "target", model)
    return us.oracle(lambda X: (written(model(X)), written(explain(inside, X))), model.dim, kind=kind, **said)


def ids(model: Any, written: Written, said: dict[str, Any]) -> Any:
    """Ids in, one number out."""

    def service(tokens: Any, counts: Any = None) -> Any:
        return written(model(tokens, counts))

    service.accepts_counts = True  # type: ignore[attr-defined]
    return us.token_oracle(service, model.vocabulary, **said)


def logits(model: Any, written: Written, said: dict[str, Any], shows: Any = "logits") -> Any:
    """Prompts of ids in, logits or log-probabilities out."""

    def service(prompts: Any) -> Any:
        y = np.asarray(model(prompts), dtype=np.float64)
        return written(y if shows == "logits" else y - np.logaddexp.reduce(y, axis=1, keepdims=True))

    return us.logit_oracle(service, model.vocabulary, shows, max_length=model.length, **said)


@dataclass(frozen=True)
class Subject:
    """A learner, its targets by seed, the oracle of a target, and what its owner may declare.

    truth  what the learner's model is compared with, if not the target.
    """

    name: str
    learner: Any
    target: Callable[[int], Any]
    oracle: Callable[[Any, Written, dict[str, Any]], Any] = numbers
    declares: frozenset[str] = frozenset({"dtype", "tolerance", "kind"})
    truth: Callable[[Any], Any] = lambda model: model


def within(**rest: Any) -> Any:
    """An oracle of numbers with so much declared besides the format."""
    return partial(numbers, **rest)


MEASURED = frozenset({"dtype", "tolerance"})
"""Declared where the kind of the answers is taken: explanations and logits."""

LABELS: dict[str, Any] = {"oracle": within(kind="membership"), "declares": frozenset({"dtype"})}
"""Labels have no tolerance; how finely they are computed is what a dtype says."""


def orthogonal(seed: int) -> M.MultiHead:
    rng = np.random.default_rng([seed, 4])
    W, v = np.zeros((2, 5, 5)), np.zeros((2, 5))
    for h, part in enumerate((slice(0, 2), slice(2, 5))):
        k = part.stop - part.start
        W[h, part, part], v[h, part] = rng.standard_normal((k, k)), rng.standard_normal(k)
    return M.MultiHead(W, v)


def with_offsets(seed: int) -> M.MultiHead:
    rng, heads = np.random.default_rng([seed, 5]), two(seed, 4)
    return M.MultiHead(heads.W, heads.v, rng.standard_normal((2, 4)), 0.5)


def two(seed: int, dim: int = 6) -> M.MultiHead:
    return M.MultiHead.random(dim, 2, norm=2.0, seed=seed)


def two_of_unit_values(seed: int) -> M.MultiHead:
    """Labels do not show the common scale of the v_h: it is 1, as the learner has it."""
    heads = two(seed, 4)
    return M.MultiHead(heads.W, heads.v / np.linalg.norm(heads.v))


def single(seed: int, rank: int | None = None) -> M.SingleHead:
    return M.SingleHead.random(6, rank=rank, norm=2.0, seed=seed)


def affine(seed: int) -> M.SingleHead:
    head = single(seed)
    return M.SingleHead(head.W, head.v, c=np.random.default_rng([seed, 6]).standard_normal(6), constant=0.5)


def network(seed: int, **rest: Any) -> M.Transformer:
    return M.Transformer.random(4, 6, norm=2.0, seed=seed, **rest)


def deep(seed: int, width: int, **rest: Any) -> M.MultiHeadTransformer:
    return M.MultiHeadTransformer.random(5, 2, width, norm=4.0, seed=seed, **rest)


def layer(seed: int, **rest: Any) -> M.AttentionLayer:
    return M.AttentionLayer.random(8, 2, seed=seed, **rest)


def rotary(seed: int, norm: Any = "rms") -> M.AttentionLayer:
    rest: dict[str, Any] = {"norm": norm, "residual": True, "bias": norm is None, "scale": 2.0, "kv_groups": 2}
    return M.AttentionLayer.random(16, 4, 4, positions=M.Rope.ladder(4), seed=seed, **rest)


def stack(seed: int, **rest: Any) -> M.AttentionStack:
    return M.AttentionStack.random(8, 2, 2, 2, seed=seed, **rest)


def kernel(seed: int, name: str, normalised: bool = True) -> M.KernelHead:
    return M.KernelHead.random(4, name, normalised=normalised, norm=2.0, seed=seed)


def language(seed: int) -> M.TokenLayer:
    return M.TokenLayer.random(10, 40, 1, 9, seed=seed)


def unembedding(model: M.TokenLayer) -> M.OutputLayer:
    return M.OutputLayer.of_unembedding(model.basis.T)


SUBJECTS = [
    Subject("SingleHead", L.SingleHead(), single),
    Subject("SingleHead, limit", L.SingleHead(), single, within(max_norm=2.0)),
    Subject("SingleHead, W_bound", L.SingleHead(W_bound=8.0), single),
    Subject("SingleHead, coordinate", L.SingleHead(probes="coordinate"), single),
    Subject("SingleHead, affine", L.SingleHead(affine=True), affine),
    *(
        Subject(f"SingleHead, {kind}", L.SingleHead(), single, partial(explained, kind=kind), MEASURED)
        for kind in EXPLAIN
    ),
    Subject("no learner", None, single),
    Subject("LowRank", L.LowRank(), partial(single, rank=2)),
    Subject("LowRank, nuclear", L.LowRank(rank=1, method="nuclear"), partial(single, rank=1)),
    *(
        Subject(f"LowRank, {kind}", L.LowRank(), partial(single, rank=2), partial(explained, kind=kind), MEASURED)
        for kind in EXPLAIN
    ),
    Subject("Approximate", L.Approximate(), single),
    Subject("Approximate, limit", L.Approximate(), single, within(max_norm=2.0)),
    Subject("KernelHead", L.KernelHead(), partial(kernel, name="softplus")),
    Subject("KernelHead, exp", L.KernelHead("exp"), partial(kernel, name="exp")),
    Subject("KernelHead, plain sum", L.KernelHead(), partial(kernel, name="sigmoid", normalised=False)),
    Subject("KernelHead, linear", L.KernelHead(), partial(kernel, name="linear", normalised=False)),
    Subject("KernelHead, relu^2", L.KernelHead("relu^2"), partial(kernel, name="relu^2")),
    Subject("MultiHead", L.MultiHead(), two),
    Subject("MultiHead, limit", L.MultiHead(), partial(two, dim=4), within(max_norm=3.0, max_length=8)),
    Subject("MultiHead, affine", L.MultiHead(affine=True), with_offsets),
    Subject("MultiHead, gradient", L.MultiHead(), two, partial(explained, kind="gradient"), MEASURED),
    Subject("MultiHead, attention", L.MultiHead(), two, partial(explained, kind="attention"), MEASURED),
    Subject("OrthogonalHeads", L.OrthogonalHeads(), orthogonal),
    Subject("OrthogonalHeads, known", L.OrthogonalHeads([np.eye(5)[:, :2], np.eye(5)[:, 2:]]), orthogonal),
    Subject("ReluNetwork", L.ReluNetwork(), lambda seed: M.ReluNetwork.random(4, 6, seed=seed)),
    Subject("ReluNetwork, bias", L.ReluNetwork(bias=True), lambda s: M.ReluNetwork.random(4, 6, bias=True, seed=s)),
    Subject("Transformer", L.Transformer(), partial(network, bias=True)),
    Subject("Transformer, odd", L.Transformer("odd"), network),
    Subject("Transformer, limit", L.Transformer(), network, within(max_norm=3.0)),
    Subject("Transformer, heads", L.Transformer(heads=None), partial(deep, width=7)),
    Subject("AttentionBehind", L.AttentionBehind(), partial(network, bias=True)),
    Subject("AttentionBehind, heads", L.AttentionBehind(heads=None), partial(deep, width=10, bias=True)),
    Subject("AttentionLayer", L.AttentionLayer(), layer),
    Subject("AttentionLayer, post", L.AttentionLayer(), partial(layer, norm="post", residual=True)),
    Subject("AttentionLayer, pre", L.AttentionLayer(), partial(layer, norm="pre", residual=True)),
    Subject("AttentionLayer, rotary", L.AttentionLayer("lean"), rotary),
    Subject("AttentionLayer, rotary, biases", L.AttentionLayer("lean"), partial(rotary, norm=None)),
    Subject("AttentionStack", L.AttentionStack(), stack),
    Subject(
        "AttentionStack, no norm", L.AttentionStack(), lambda s: M.AttentionStack.random(6, 2, 1, 3, norm=None, seed=s)
    ),
    Subject("Membership", L.Membership(accuracy=1e-4), single, **LABELS),
    Subject("Membership, rank", L.Membership(accuracy=1e-4, rank=None), partial(single, rank=1), **LABELS),
    Subject("Membership, heads", L.Membership(accuracy=1e-3, heads=None), two_of_unit_values, **LABELS),
    Subject("TokenHead", L.TokenHead(), lambda seed: M.TokenHead.random(16, 2, 1.5, seed=seed), ids),
    Subject("TokenHead, rank", L.TokenHead(rank=2), lambda seed: M.TokenHead.random(16, 2, 1.5, seed=seed), ids),
    Subject("TokenLayer", L.TokenLayer(), language, logits, MEASURED),
    Subject("OutputLayer", L.OutputLayer(), language, logits, MEASURED, unembedding),
    Subject(
        "OutputLayer, log-probabilities",
        L.OutputLayer(),
        language,
        partial(logits, shows="log-probabilities"),
        MEASURED,
        unembedding,
    ),
]
