"""From unknowns to a Recovery: the model, standard errors, what is undetermined, claims in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.fitting.directions import Directions, Spans
from unsoftmax.fitting.heads import Heads, Shape
from unsoftmax.fitting.verdict import BARS, Judged
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Certificate, Claim, Recovery, Status, Usage


@dataclass(frozen=True, eq=False)
class Ended:
    """A fit that has been judged."""

    problem: Heads
    x: Array
    shown: Directions
    judged: Judged
    span: Spans


def recovery_of(end: Ended, usage: Usage, provenance: dict[str, Any]) -> Recovery:
    """The result; a surrogate states nothing about its parameters."""
    shape, judged = end.problem.shape, end.judged
    model = model_of(shape, end.x)
    if judged.status is Status.SURROGATE:
        said = end.span.sentences()
        told = (*judged.notes, *([f"This log: {'; '.join(said)}."] if said else []))
        return Recovery(model, judged.status, usage, Certificate(judged.claims), provenance, told)
    W, _, P = shape.split(end.x)
    root = _embedded(shape, end.x, end.shown.covariance_root(judged.limit)) * judged.deviation
    cut = W.size
    errors = np.sqrt((root**2).sum(axis=1))
    hidden = end.shown.unseen(judged.limit)
    undetermined = None
    notes = list(judged.notes)
    if hidden.any():
        undetermined = np.linalg.qr(_embedded(shape, end.x, end.shown.T @ end.shown.V[hidden].T))[0].T
        notes.insert(0, _blind_sentence(len(undetermined), shape, end.span))
    which = "W and P" if shape.outputs > 1 else "W and v"
    stated = Claim(
        "relative parameter error",
        BARS * max(_relative(root[:cut], W), _relative(root[cut:], P)),
        statement=f"of {which}{' on what the log determines' if hidden.any() else ''}, from the residual and J",
    )
    named = _named(shape, errors[:cut].reshape(W.shape), errors[cut:].reshape(P.shape))
    claims = Certificate((*judged.claims, stated))
    return Recovery(model, judged.status, usage, claims, provenance, tuple(notes), undetermined, named)


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


def _embedded(shape: Shape, x: Array, steps: Array) -> Array:
    """Columns of steps (unknowns, k) as changes of W raveled, then P: (H d d + H m d, k)."""
    _, factors, _ = shape.split(x)
    if factors is None:
        return steps
    H, d, r = shape.heads, shape.dim, shape.rank
    A, B = factors
    dA, dB = steps[: shape.scores].reshape(2, H, d, r or 0, -1)
    W = np.einsum("hirk,hjr->hijk", dA, B) + np.einsum("hir,hjrk->hijk", A, dB)
    return np.concatenate([W.reshape(H * d * d, -1), steps[shape.scores :]])


def _relative(root: Array, value: Array) -> float:
    return float(np.linalg.norm(root)) / max(float(np.linalg.norm(value)), 1e-300)


def _blind_sentence(number: int, shape: Shape, span: Spans) -> str:
    said = span.sentences()
    why = f" (this log: {'; '.join(said)})" if said else ""
    beyond = number - (shape.freedom - span.unknowns(shape)) if said else number
    more = f"; {beyond} of them for want of records that show them" if beyond > 0 else ""
    left = "" if shape.rank is not None else "; they are left at 0"
    return f"{number} of {shape.freedom} directions of the parameters are not determined{why}{more}{left}."
