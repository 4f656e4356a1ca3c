"""Programs behind an output link that cannot show every f."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from unsoftmax.learners.base import Asking
from unsoftmax.probes.base import Array, LazyProbes, Probes

T = TypeVar("T")

_ROWS = 4096
"""Sequences mirrored at once, so that lazy designs stay lazy."""


def asking_both_signs(program: Asking[T]) -> Asking[T]:
    """A program on f over a service that answers log f, and so has no answer where f <= 0.

    A head without offsets is odd, f(-X) = -f(X): negation leaves every score alone. What has no answer is asked
    negated, as phase "repair"; where neither sign has one, f is 0.
    """
    request = next(program)
    while True:
        answers = yield replace(request, saturable=True)
        lost = np.flatnonzero(~np.isfinite(answers))
        if len(lost):
            mirrored = yield _negated(request, lost)
            answers = answers.copy()
            answers[lost] = np.where(np.isfinite(mirrored), -mirrored, 0.0)
        try:
            request = program.send(answers)
        except StopIteration as stop:
            value: T = stop.value
            return value


def _negated(request: Probes | LazyProbes, rows: Array) -> LazyProbes:
    def build(start: int, stop: int) -> Probes:
        parts = [_at(request, rows[k : min(k + _ROWS, stop)]) for k in range(start, stop, _ROWS)]
        counts = None if any(p.counts is None for p in parts) else np.concatenate([p.counts for p in parts])
        return Probes(-np.concatenate([p.tokens for p in parts]), counts)

    return LazyProbes(len(rows), request.row_bytes, build, "repair", saturable=True)


def _at(request: Probes | LazyProbes, rows: Array) -> Probes:
    """The sequences at increasing `rows` of a request that may be lazy."""
    first, last = int(rows[0]), int(rows[-1])
    return request[first : last + 1].take(rows - first)
