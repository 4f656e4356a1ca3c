"""`together`: several programs as one, their rounds merged, so that what is independent is asked at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, LazyProbes, Probes

T = TypeVar("T")

Request = Probes | LazyProbes


def together(programs: Sequence[Asking[T]]) -> Asking[list[T]]:
    """Run programs in lockstep and return their values in order; requests of one shape and phase share a round."""
    values: list[Any] = [None] * len(programs)
    waiting: dict[int, Request] = {}
    try:
        for i, program in enumerate(programs):
            _advance(program, None, i, waiting, values)
        while waiting:
            groups: dict[tuple[str, int], list[int]] = {}
            for i, request in waiting.items():
                groups.setdefault((request.phase, request.row_bytes), []).append(i)
            answers: dict[int, Array] = {}
            for members in groups.values():
                parts = [waiting[i] for i in members]
                y = yield _joined(parts)
                ends = np.cumsum([len(part) for part in parts])[:-1]
                answers.update(zip(members, np.split(y, ends), strict=True))
            waiting = {}
            for i, answer in answers.items():
                _advance(programs[i], answer, i, waiting, values)
        return values
    finally:
        for program in programs:
            program.close()


def _advance(program: Asking[T], answer: Array | None, i: int, waiting: dict[int, Request], values: list[Any]) -> None:
    try:
        waiting[i] = next(program) if answer is None else program.send(answer)
    except StopIteration as stop:
        values[i] = stop.value


def _joined(parts: list[Request]) -> Request:
    """Requests one after the other; lazy as soon as one of them is."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, Probes) for part in parts):
        return _concatenated([part for part in parts if isinstance(part, Probes)])
    ends = np.cumsum([len(part) for part in parts])

    def build(start: int, stop: int) -> Probes:
        cut = []
        for part, end in zip(parts, ends, strict=True):
            first = int(end) - len(part)
            if start < end and stop > first:
                cut.append(part[max(start - first, 0) : min(stop - first, len(part))])
        return _concatenated(cut)

    return LazyProbes(int(ends[-1]), parts[0].row_bytes, build, parts[0].phase)


def _concatenated(parts: list[Probes]) -> Probes:
    tokens = np.concatenate([part.tokens for part in parts])
    if all(part.counts is None for part in parts):
        return Probes(tokens, phase=parts[0].phase)
    ones = [np.ones(part.tokens.shape[:2], dtype=np.int64) if part.counts is None else part.counts for part in parts]
    return Probes(tokens, np.concatenate(ones), parts[0].phase)
