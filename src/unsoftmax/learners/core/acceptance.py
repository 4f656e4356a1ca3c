"""What a learner learns from: declared on its class as `accepts`, held against the oracle before the first query.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from typing import Any, Literal

from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.parameters import check_parameters
from unsoftmax.spec import OracleSpec

Access = Literal["values", "noisy", "labels", "vectors", "ids", "gradient", "attention", "logits"]

SCALARS: tuple[Access, ...] = ("values", "noisy")
"""One real number per sequence of vectors, exact or within a tolerance: what most learners take."""

EXPLAINING: tuple[Access, ...] = (*SCALARS, "gradient", "attention")
"""The same, and values that come with their gradient or the attention behind them."""

_WORDS: dict[Access, str] = {
    "values": "one real number per sequence of vectors",
    "noisy": "one real number, within a tolerance, per sequence of vectors",
    "labels": "labels of sequences of vectors",
    "vectors": "vectors, one per sequence of vectors",
    "ids": "one real number per sequence of token ids",
    "gradient": "values with their gradients",
    "attention": "values with the attention behind them",
    "logits": "what a language model says of the next token",
}

_INSTEAD: dict[Access, str] = {
    "values": "SingleHead or MultiHead",
    "noisy": "Approximate",
    "labels": "Membership",
    "vectors": "AttentionLayer",
    "ids": "TokenHead",
    "gradient": "SingleHead or LowRank",
    "attention": "SingleHead, LowRank or MultiHead",
    "logits": "OutputLayer",
}

_DECLARED: dict[Access, str] = {
    "values": "us.oracle(fn, dim)",
    "noisy": "us.oracle(fn, dim, tolerance=...)",
    "labels": 'us.oracle(fn, dim, kind="membership")',
    "vectors": "us.oracle(fn, dim, outputs=...)",
    "ids": "us.token_oracle(fn, vocabulary)",
    "gradient": 'us.oracle(fn, dim, kind="gradient")',
    "attention": 'us.oracle(fn, dim, kind="attention")',
    "logits": "us.logit_oracle(fn, vocabulary)",
}


def access(spec: OracleSpec) -> Access | None:
    """What an oracle of this spec shows; None for what no learner takes (labels of token ids, several numbers)."""
    if spec.shows is not None:
        return "logits"
    if spec.vocabulary is not None:
        return "ids" if spec.outputs is None and spec.kind in ("value", "approximate") else None
    if spec.outputs is not None:
        return "vectors" if spec.kind in ("value", "approximate") else None
    match spec.kind:
        case "membership":
            return "labels"
        case "gradient" | "attention":
            return spec.kind
    return "noisy" if spec.kind == "approximate" or spec.tolerance > 0 else "values"


def check(learner: Any, spec: OracleSpec) -> None:
    """Raise InvalidArgument for hyper-parameters of the wrong kind, and for an oracle that shows something else."""
    check_parameters(learner)
    accepts: tuple[Access, ...] = learner.accepts
    shown = access(spec)
    if shown in accepts:
        return
    wanted = accepts[0]
    remedy = f"declare the oracle with {_DECLARED[wanted]} if the target shows that"
    if shown is not None:
        remedy += f", or use {_INSTEAD[shown]}, which learns from {_WORDS[shown]}"
    raise InvalidArgument(f"{type(learner).__name__} learns from {_WORDS[wanted]}; {remedy}.")
