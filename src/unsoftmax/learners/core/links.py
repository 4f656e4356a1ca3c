"""Programs behind an output link that cannot show every f.

Theory: docs/theory/approximate.md, "Output links".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import Noise
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.links import READABLE
from unsoftmax.probes.base import Array, LazyProbes, Probes, Request, concatenated, one_row
from unsoftmax.spec import OracleSpec

T = TypeVar("T")


def asking_both_signs(program: Asking[T]) -> Asking[T]:
    """A program on f over a service that answers log f, and so has no answer where f <= 0.

    A head without offsets is odd, f(-X) = -f(X): negation leaves every score alone. What has no answer is asked
    negated, as phase "repair"; where neither sign has one, f is 0.
    """

    def ask(request: Request) -> Asking[Array]:
        answers = yield replace(request, saturable=True)
        lost = np.flatnonzero(~np.isfinite(answers))
        if len(lost):
            mirrored = yield _negated(request, lost)
            answers = answers.copy()
            answers[lost] = np.where(np.isfinite(mirrored), -mirrored, 0.0)
        return answers

    return driven(program, ask)


def _negated(request: Request, rows: Array) -> LazyProbes:
    def build(start: int, stop: int) -> Probes:
        cut = [
            _at(request, rows[k : min(k + CORE.sequences_mirrored_at_once, stop)])
            for k in range(start, stop, CORE.sequences_mirrored_at_once)
        ]
        asked = concatenated(cut)
        return asked.like(-asked.tokens, asked.counts, 0)

    return LazyProbes(len(rows), request.row_bytes, build, "repair", saturable=True)


def _at(request: Request, rows: Array) -> Probes:
    """The sequences at increasing `rows` of a request that may be lazy."""
    first, last = int(rows[0]), int(rows[-1])
    return request[first : last + 1].take(rows - first)


def readable_length(spec: OracleSpec, noise: Noise, rng: np.random.Generator) -> Asking[float]:
    """Token norm at which answers behind a link reach, but do not leave, the range where the link is steep."""
    link = spec.link
    limit = min(spec.domain.norm_limit, 2.0**30)
    if math.isinf(READABLE[link]):
        return min(1.0, limit)

    def look(s: float) -> Asking[float]:
        g = rng.standard_normal((6, spec.dim))
        g = (g * (0.9 * s / np.linalg.norm(g, axis=1, keepdims=True))).astype(np.float32).astype(np.float64)
        y = yield one_row(g, phase="pilot", saturable=True)
        # Random directions see |v| / sqrt d each; what is wanted is |x| |v|.
        size = math.sqrt(spec.dim) * float(np.sqrt(np.mean(y**2)))
        if not math.isfinite(size) or size > 3 * READABLE[link]:
            return SATURATED
        drowned = size < 3 * math.sqrt(spec.dim) * float(np.median(noise.radius(np.zeros(1), 0.0)))
        return INVISIBLE if drowned and s < limit else size / READABLE[link]

    found = yield from find_scale(look, 1.0, Steps(shorter=1 / 16, longer=16.0, limit=limit))
    if found.size != SATURATED:
        return min(limit, found.scale / max(found.size, 1e-300))
    low, high = found.low, found.high
    if spec.tolerance > 0 and low:
        raise NotIdentifiable(
            f"no token length brings the answers into the range of the link {link!r} and above their noise: at norm "
            f"{low:.2g} they are lost in the tolerance {spec.tolerance:g}, at {high:.2g} they saturate."
        )
    raise ModelMismatch(
        f"no token length brings the answers into the range of the link {link!r}: saturated above, constant below it."
    )
