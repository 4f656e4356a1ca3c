"""Input limits, probed gently: one sequence at a time, longer each time, until the target refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from unsoftmax.diagnosis.answers import PHASE
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Finding
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes, Request


class Accepted:
    """The longest token and sequence that were answered so far."""

    def __init__(self) -> None:
        self.norm, self.length = 0.0, 0.0

    def __call__(self, request: Request, _: Array) -> None:
        if not isinstance(request, Probes):
            return
        tokens = request.tokens
        self.norm = max(self.norm, float(np.linalg.norm(tokens, axis=-1).max(initial=0.0)))
        self.length = max(self.length, float(tokens.shape[1]))


def input_limits(stack: Stack, accepted: Accepted) -> Iterator[Finding]:
    """What is declared is believed; where nothing is, a few longer tokens and sequences than before are tried."""
    spec = stack.spec
    unit = np.full(spec.dim, 1 / np.sqrt(spec.dim))
    norms: dict[float, Array] = {norm: np.tile(unit, (1, 2, 1)) * norm for norm in DIAGNOSIS.norms}
    lengths: dict[float, Array] = {length: np.tile(unit, (1, length, 1)) for length in DIAGNOSIS.lengths}
    yield _finding("token norm", spec.domain.max_norm, norms, accepted.norm, stack)
    yield _finding("sequence length", spec.domain.max_length, lengths, accepted.length, stack)


def _finding(name: str, declared: float | None, tries: Mapping[float, Array], done: float, stack: Stack) -> Finding:
    if declared is not None:
        return Finding(f"limit on {name}", declared, f"The {name} is declared to be at most {declared:g}.")
    accepted, refusal = 0.0, ""
    for size, tokens in tries.items():
        if size <= done:
            accepted = size
            continue
        try:
            list(stack.ask([Probes(tokens, phase=PHASE)]))
        except UnsoftmaxError as error:
            refusal = str(error)
            break
        accepted = size
    if refusal:
        words = f"The target refuses a {name} of {size:g} and accepts {accepted:g}: declare a limit between them."
        return Finding(f"limit on {name}", accepted, words, evidence={"refusal": refusal})
    return Finding(f"limit on {name}", None, f"A {name} of {accepted:g} is accepted; no limit was met.")
