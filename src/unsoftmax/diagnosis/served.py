"""Vector answers in which order counts: positions, sinks, window and norm, by the layer learner's own questions."""

from __future__ import annotations

import numpy as np

from unsoftmax import learners
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion
from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.layer.norms import find_norm
from unsoftmax.learners.rotary.kind import FAR, Kind, find_kind
from unsoftmax.spec import OracleSpec

SERVED_QUERIES = 48
"""Most queries: thirteen for the norm, thirteen for the kind, two for each of eleven halvings of a window."""

_ORDERS = {
    "none": "The order of two tokens does not matter: no positions.",
    "rotary": "Order matters only through the query token: rotary positions.",
    "bias": "Order matters for an empty query token too: ALiBi, or rotary positions with a query bias.",
}


def served(spec: OracleSpec, found: tuple[Finding, ...], rng: np.random.Generator) -> Asking[Diagnosis]:
    """An attention layer with positions, or "outside" in the words of the learner that would refuse it."""
    try:
        norm = yield from find_norm(spec, rng)
        if norm not in (None, "rms"):
            raise ModelMismatch(f"positions beside a LayerNorm ({norm}-attention) are not learned")
        kind = yield from find_kind(spec, rng)
    except ModelMismatch as refusal:
        words = f"No learner is chosen: the order of the other tokens changes the answer, and {refusal}"
        return Diagnosis("outside", None, found, (words,), code="order")
    found += _findings(norm, kind)
    if kind.order == "bias":
        words = (
            "No learner is chosen: the order of the other tokens changes the answer for an empty query token too, "
            "which a few queries do not tell apart."
        )
        named = Suggestion(
            "ALiBi and rotary positions with a query bias are learned where tokens exist that no head writes",
            learners.AttentionLayer(),
        )
        return Diagnosis("outside", None, found, (words,), code="order", suggestions=(named,))
    return Diagnosis("attention layer", learners.AttentionLayer(), found)


def _findings(norm: str | None, kind: Kind) -> tuple[Finding, ...]:
    normed = "No normalisation is seen." if norm is None else "RMSNorm stands before attention."
    sinks = (
        "Copies of a token change the answer: sinks take a share." if kind.sinks else "Weights add up to 1: no sinks."
    )
    window = (
        f"No window shows up to {FAR} tokens." if kind.window is None else f"Tokens {kind.window} away are not seen."
    )
    return (
        Finding("norm", norm, normed, 0.9),
        Finding("positions", kind.order, _ORDERS[kind.order], 0.9),
        Finding("sinks", kind.sinks, sinks, 0.9),
        Finding("window", kind.window, window, 0.9),
    )
