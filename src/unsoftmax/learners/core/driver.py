"""`driven`: the one way to run a program inside another.

`together`: several programs as one, their rounds merged, so that what is independent is asked at once.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from unsoftmax.learners.core.base import Asking, Settled
from unsoftmax.probes.base import Array, Request, joined

T = TypeVar("T")

Answering = Callable[[Request], Asking[Array]]
"""How a request of the inner program is answered: by asking it, asking another, or knowing the answer."""


def driven(program: Asking[T], answering: Answering, waiting: Request | None = None) -> Asking[T]:
    """Run `program` with every request answered by `answering`; it is closed however this ends.

    `waiting` is the request of a program that has already begun and waits for its answer. What it settles is settled.
    """
    try:
        request = next(program) if waiting is None else waiting
        while True:
            if isinstance(request, Settled):
                request = program.send((yield request))
            else:
                request = program.send((yield from answering(request)))
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        program.close()


def together(programs: Sequence[Asking[T]]) -> Asking[list[T]]:
    """Run programs in lockstep and return their values in order; requests of one shape and phase share a round."""
    values: list[Any] = [None] * len(programs)
    waiting: dict[int, Request] = {}
    try:
        for i, program in enumerate(programs):
            yield from _advance(program, None, i, waiting, values)
        while waiting:
            groups: dict[tuple[str, int, bool], list[int]] = {}
            for i, request in waiting.items():
                groups.setdefault((request.phase, request.row_bytes, request.saturable), []).append(i)
            answers: dict[int, Array] = {}
            for members in groups.values():
                parts = [waiting[i] for i in members]
                y = yield joined(parts)
                ends = np.cumsum([len(part) for part in parts])[:-1]
                answers.update(zip(members, np.split(y, ends), strict=True))
            waiting = {}
            for i, answer in answers.items():
                yield from _advance(programs[i], answer, i, waiting, values)
        return values
    finally:
        for program in programs:
            program.close()


def _advance(
    program: Asking[T], answer: Array | None, i: int, waiting: dict[int, Request], values: list[Any]
) -> Asking[None]:
    """On to the next request of program i, or to its value."""
    try:
        request = next(program) if answer is None else program.send(answer)
        while isinstance(request, Settled):
            request = program.send((yield request))
        waiting[i] = request
    except StopIteration as stop:
        values[i] = stop.value
