"""`driven`: the one way to run a program inside another.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unsoftmax.learners.core.base import Asking, Settled
from unsoftmax.probes.base import Array, Request

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
