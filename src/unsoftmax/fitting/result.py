"""From unknowns to a Recovery: the model, standard errors, what is undetermined, claims in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.directions import Seen
from unsoftmax.fitting.heads import Heads
from unsoftmax.fitting.narrowing import Narrowed
from unsoftmax.fitting.rivals import Reached
from unsoftmax.fitting.shape import Shape
from unsoftmax.fitting.spans import Spans
from unsoftmax.fitting.verdict import Judged
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import RELATIVE_ERROR, Certificate, Claim, Recovery, Status, Usage


@dataclass(frozen=True, eq=False)
class Ended:
    """A fit that has been judged."""

    problem: Heads
    x: Array
    seen: Seen | Reached
    judged: Judged
    span: Spans
    """Of the tokens in all dimensions."""
    narrowed: Narrowed


def recovery_of(end: Ended, usage: Usage, provenance: dict[str, Any]) -> Recovery:
    """The result; a surrogate states nothing about its parameters."""
    shape, judged = end.problem.shape, end.judged
    model = end.narrowed.model(model_of(shape, end.x))
    if judged.status is Status.SURROGATE:
        said = end.span.sentences()
        told = (*judged.notes, *([f"This log: {'; '.join(said)}."] if said else []))
        # What it says of records like these is stated, not checked: no certificate of a surrogate holds.
        claims = Certificate(tuple(replace(claim, observed=None) for claim in judged.claims))
        return Recovery(model, judged.status, usage, claims, provenance, told)
    W, _, P = shape.split(end.x)
    spread = end.seen.spread(judged.limit)
    number, basis = end.narrowed.hidden(*end.seen.hidden(judged.limit), shape)
    at_0 = _at_zero(basis, W, P) if end.narrowed.basis is None else shape.rank is None
    notes = [_blind_sentence(number, end.narrowed.shape(shape), end.span, at_0)] * bool(number) + list(judged.notes)
    sizes = (max(float(np.linalg.norm(part)), 1e-300) for part in (W, P))
    relative = [norm / size for norm, size in zip((spread.norm_W, spread.norm_P), sizes, strict=True)]
    which = "W and P" if shape.outputs > 1 else "W and v"
    stated = Claim(
        RELATIVE_ERROR,
        FITTING.bars * judged.deviation * max(relative),
        statement=f"of {which}{' on what the log determines' if number else ''}, from the residual and J",
    )
    errors = end.narrowed.errors(_named(shape, spread.W * judged.deviation, spread.P * judged.deviation))
    claims = Certificate((*judged.claims, stated))
    provenance = provenance | {"found": provenance.get("found", {}) | {"undetermined": number}}
    return Recovery(model, judged.status, usage, claims, provenance, tuple(notes), basis, errors)


def model_of(shape: Shape, x: Array) -> Model:
    """The heads as a model of the library."""
    W, factors, P = shape.split(x)
    if shape.outputs > 1:
        H, d = shape.heads, shape.dim
        eye = np.repeat(np.eye(d)[None], H, axis=0)
        K, Q = (eye, W) if factors is None else (part.transpose(0, 2, 1) for part in factors)
        return AttentionLayer(K, Q, np.zeros((H, d)), P, eye, np.zeros(shape.outputs))
    if shape.heads > 1:
        return MultiHead(W, P[:, 0])
    return SingleHead(W[0], P[0, 0]) if factors is None else LowRankHead(factors[0][0], factors[1][0], P[0, 0])


def _named(shape: Shape, W: Array, P: Array) -> dict[str, Array]:
    if shape.outputs > 1:
        return {"W": W, "P": P}
    return {"W": W, "v": P[:, 0]} if shape.heads > 1 else {"W": W[0], "v": P[0, 0]}


def _at_zero(basis: Array | None, W: Array, P: Array) -> bool:
    """Whether the parameters have nothing along undetermined directions (k, unknowns): what hardly shows was fitted."""
    x = np.concatenate([W.ravel(), P.ravel()])
    return basis is not None and float(np.linalg.norm(basis @ x)) <= FITTING.finest * float(np.linalg.norm(x))


def _blind_sentence(number: int, shape: Shape, span: Spans, at_zero: bool) -> str:
    said = span.sentences()
    why = f" (this log: {'; '.join(said)})" if said else ""
    beyond = number - (shape.freedom - span.unknowns(shape))
    more = f"; {beyond} of them for want of records that show and confirm them" if beyond > 0 else ""
    left = "; they are left at 0" if at_zero else "; what the model has along them is one of many that fit"
    return f"{number} of {shape.freedom} directions of the parameters are not determined{why}{more}{left}."
