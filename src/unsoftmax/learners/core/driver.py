"""`driven`: the one way to run a program inside another.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Request

T = TypeVar("T")

Answering = Callable[[Request], Asking[Array]]
"""How a request of the inner program is answered: by asking it, asking another, or knowing the answer."""


def driven(program: Asking[T], answering: Answering, waiting: Request | None = None) -> Asking[T]:
    """Run `program` with every request answered by `answering`; it is closed however this ends.

    `waiting` is the request of a program that has already begun and waits for its answer.
    """
    try:
        request = next(program) if waiting is None else waiting
        while True:
            request = program.send((yield from answering(request)))
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        program.close()
