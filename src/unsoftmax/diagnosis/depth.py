"""Vector answers beside a residual that no single layer explains: a pre-norm stack, seen where it is one wide layer.

With all tokens but the last frozen (see `learners/stack/far.py`) a pre-norm stack of softmax heads answers a pair of
neighbours q + delta, q by sum_h sigma(t_h - log k) P_h delta, t_h = delta'(W_h q + c_h). For a small delta that is
p P delta + p (1 - p) E in the share p of copies, and E is affine in q: four q on a circle have E_1 + E_2 = E_3 + E_4.
Other kernels, normed scores and gates bend E, unnormalised weights and sinks bend the copies, and positions show when
the frozen tokens change places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.diagnosis.answers import Answers, sphere
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Diagnosis, Finding
from unsoftmax.diagnosis.sketch import Meter, TooDearError, limited
from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.far import EXTRAPOLATED, Far, find_far, may_change_places
from unsoftmax.learners.stack.frame import Frame, find_frame
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

_COPIES = np.array([[2, 2], [1, 2], [1, 4], [1, 7], [4, 2], [7, 2]])
"""Copies of q + delta and of q: six shares for the three terms of the law."""


@dataclass(frozen=True)
class Depth:
    """`networks`: single long tokens are answered with more than heads can; `evidence`: how far the laws are off."""

    networks: bool
    evidence: dict[str, float]


def depth(
    spec: OracleSpec, known: Answers, found: tuple[Finding, ...], rng: np.random.Generator, allowed: int
) -> Asking[Diagnosis | None]:
    """A stack of pre-norm layers, with or without networks; None if a law fails or answers are too coarse to tell."""
    learner = learner_of("attention stack")
    try:
        learner.forecast(spec)
        seen = yield from limited(_seen(spec, known, rng), Meter(allowed))
    except (InvalidArgument, DomainError, ModelMismatch, NotIdentifiable, TooDearError):
        return None
    if seen is None:
        return None
    several = "Single tokens pass more than one layer." if not seen.networks else "Networks stand beside the heads."
    found += (
        Finding("frozen contexts", True, "Behind frozen tokens heads add up as in one layer.", evidence=seen.evidence),
        Finding("networks", seen.networks, several),
    )
    return Diagnosis("attention stack", learner, found)


def _seen(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[Depth | None]:
    frame = yield from find_frame(spec, rng)
    if frame.norm is None or frame.dtype != "float64" or not (yield from _placeless(spec, known, rng)):
        return None
    alone = yield from find_far(frame, rng)
    far = Far(frame, EXTRAPOLATED[frame.dtype], rng)
    if not (yield from may_change_places(far)):
        return None
    laws = yield from _laws(far, rng)
    return None if laws is None or max(laws.values()) > DIAGNOSIS.law_off else Depth(alone.networks, laws)


def _placeless(spec: OracleSpec, known: Answers, rng: np.random.Generator) -> Asking[bool]:
    """Whether three copies of a token are answered as one: no positions are added to tokens, no sink takes a share.

    Told as finely as whether order counts: positions of a millionth of the tokens would pass for a causal mask.
    """
    x = sphere(rng, (1, 1, spec.dim)) * np.sqrt(spec.dim)
    one = yield Probes(x)
    three = yield Probes(np.repeat(x, 3, axis=1))
    same = max(CORE.felt * float(np.finfo(float).eps), known.tolerance(known.size))
    return float(np.abs(one - three).max()) <= same * float(np.abs(one).max())


def _laws(far: Far, rng: np.random.Generator) -> Asking[dict[str, float] | None]:
    """How far scores are from affine in the query token, and copies from softmax; None if E cannot be heard."""
    axes = np.linalg.qr(rng.standard_normal((far.frame.D, 4)))[0].T
    size = DIAGNOSIS.depth_step
    for _ in range(2):
        q, delta = _circle(far.frame, axes, size)
        G = yield from far.pairs(q, delta, np.full((4, 2), 2))
        moved = float(np.linalg.norm(G[0] - G[1]) + np.linalg.norm(G[2] - G[3]))
        share = moved / max(float(np.linalg.norm(G.sum(axis=0))), 1e-300)
        if DIAGNOSIS.depth_share / DIAGNOSIS.depth_within <= share <= DIAGNOSIS.depth_share * DIAGNOSIS.depth_within:
            break
        size, asked = (
            float(
                np.clip(size * DIAGNOSIS.depth_share / max(share, 1e-300), DIAGNOSIS.depth_least, DIAGNOSIS.depth_most)
            ),
            size,
        )
        if size == asked:
            break
    if (
        moved <= CORE.audible * far.noise * np.sqrt(far.frame.d)
        or share > DIAGNOSIS.depth_within**2 * DIAGNOSIS.depth_share
    ):
        return None
    bent = float(np.linalg.norm(G[0] + G[1] - G[2] - G[3])) / moved
    several = np.ones((len(_COPIES), 1))
    y = yield from far.pairs(several * q[:1], several * delta[:1], _COPIES)
    p = _COPIES[:, :1] / _COPIES.sum(axis=1, keepdims=True)
    terms = np.hstack([p, p * (1 - p), p * (1 - p) * (1 - 2 * p)])
    fit = np.linalg.lstsq(terms, y, rcond=None)[0]
    off = float(np.abs(terms @ fit - y).max()) / max(float(np.abs(fit[1]).max()), moved)
    return {"scores bent": bent, "copies off": off}


def _circle(frame: Frame, axes: Array, size: float) -> tuple[Array, Array]:
    """Four q (4, D) on a circle, opposite ones side by side, and delta (4, D): q and q + delta on the sphere."""
    centre, u, w, along = axes
    delta = size * frame.radius * along
    rest = np.sqrt(frame.radius**2 - delta @ delta / 4)
    q = -delta / 2 + rest * (0.6 * centre + 0.8 * np.stack([u, -u, w, -w]))
    return q, np.tile(delta, (4, 1))
