"""run(program, stack): the one place where programs meet oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from unsoftmax.errors import BudgetExceeded, InvalidArgument, OracleError
from unsoftmax.learners.core.base import Asking, Settled
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import PART_BYTES, Array, LazyProbes, Probes

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """State of a run as shown to people: in this phase, `done` of `size` sequences of the round are answered.

    `ahead` queries are known to be still to come (0 if the program cannot say).
    """

    phase: str
    done: int
    size: int
    asked: int
    billed: int
    ahead: int = 0


ProgressCallback = Callable[[Progress], None]


def run(program: Asking[T], stack: Stack, progress: ProgressCallback | None = None) -> T:
    """Drive a program to its end; every yield is one round. The program's value is returned."""
    try:
        request = next(program)
        while True:
            if isinstance(request, Settled):
                request = program.send(stack.settle(request.name, request.value))
                continue
            try:
                answered = answer(request, stack, progress)
            except BudgetExceeded as refusal:
                # A program that knows what it still needs may say so; it cannot go on.
                program.throw(refusal)
                raise
            request = program.send(answered)
    except StopIteration as stop:
        value: T = stop.value
        return value
    except MemoryError as error:
        raise InvalidArgument(
            f"dim {stack.spec.dim} with {stack.spec.outputs or 1} numbers per answer does not fit into the memory of "
            "this machine; use a larger one, or check what the target declares."
        ) from error
    finally:
        program.close()


def answer(request: Probes | LazyProbes, stack: Stack, progress: ProgressCallback | None) -> Array:
    """Answers of one round, (size,) or (size, outputs), asked in chunks so that memory stays bounded."""
    size = len(request)
    answers = np.empty(stack.spec.shape(0, 1))
    meter = stack.meter
    stack.admit(request.ahead)
    meter.rounds += 1
    done = 0
    for part in stack.ask(chunks(request, stack.spec.max_batch)):
        if done == 0:
            answers = np.empty((size, *part.shape[1:]))
        answers[done : done + len(part)] = part
        done += len(part)
        meter.asked += len(part)
        if progress is not None:
            progress(Progress(request.phase, done, size, meter.asked, meter.billed, max(0, request.ahead - done)))
    if stack.spec.link is not None and not request.saturable and not np.isfinite(answers).all():
        raise OracleError(
            f"{int((~np.isfinite(answers)).sum())} of {size} answers of phase {request.phase!r} are at an end of the "
            f"range of the link {stack.spec.link!r}: they do not tell f. Declare max_norm=, so that tokens are "
            "shorter, or use learners.Approximate, which asks again where the link is steep."
        )
    return answers


def chunks(request: Probes | LazyProbes, max_batch: int | None) -> Iterator[Probes]:
    """Cut a round into contiguous chunks of bounded size."""
    rows = max(1, PART_BYTES // max(1, request.row_bytes))
    rows = rows if max_batch is None else min(rows, max_batch)
    for start in range(0, len(request), rows):
        yield request[start : start + rows]
