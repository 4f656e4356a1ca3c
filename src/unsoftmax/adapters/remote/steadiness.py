"""How far a server's answers to one question lie apart: alone, beside others in a request, and with others at once.

What batches, slots and schedules change is then the tolerance of the oracle. What a server always does the same, such
as keeping keys in float16, is part of the model it serves and no tolerance of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from unsoftmax.adapters.callable import CallableOracle
from unsoftmax.arguments import real
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.dispatching import Tally, call, checked
from unsoftmax.oracles.rechecking import ROUNDINGS, WIDER
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import OracleSpec

_LENGTH = 4
"""Tokens of a question: a service bills by the token, and attention over four already depends on how it is summed."""

_TOGETHER = 4
"""Questions in one request, and at most as many requests at once."""


def steady(made: Oracle, tolerance: float | None) -> Oracle:
    """The oracle with the tolerance given, or with the one measured if it is None.

    At most ten short questions are asked for that. They are billed to the first run, like what had to be sent again.
    """
    assert isinstance(made, CallableOracle)
    if tolerance is None:
        tolerance = _measured(made)
    real("tolerance", tolerance, closed=True)
    spec = made.spec
    return replace(made, spec=replace(spec, kind="approximate" if tolerance > 0 else spec.kind, tolerance=tolerance))


def _measured(made: CallableOracle) -> float:
    spec, owed = made.spec, of_source(made, "owed", None)
    questions = _questions(spec)
    one = questions[:1]

    def asked(probes: Probes) -> Array:
        tally = Tally(limited=False)
        try:
            return checked(call(made, probes, tally)[0], probes, spec)
        finally:
            owed.add(len(probes) + tally.queries, probes.total_length + tally.tokens)

    answers = [asked(one), asked(one)]
    together = min(_TOGETHER, spec.max_batch or 1)
    if together > 1:
        answers.append(asked(questions.take(np.arange(together)[::-1]))[-1:])
    at_once = min(_TOGETHER, int(of_source(made, "concurrency", 1)))
    with ThreadPoolExecutor(at_once) as workers:
        first, *_ = workers.map(asked, [questions[i : i + 1] for i in range(at_once)])
        answers.append(first)
    found = _aligned(answers, spec)
    spread = float(np.ptp(found, axis=0).max(initial=0.0))
    rounding = ROUNDINGS * spec.eps * float(np.abs(found).max(initial=0.0))
    return 0.0 if spread <= rounding else float(f"{WIDER * spread:.1e}")


def _questions(spec: OracleSpec) -> Probes:
    """Short questions, all different, the same in every session."""
    rng = np.random.default_rng(0)
    if spec.vocabulary is None:
        return Probes(rng.standard_normal((_TOGETHER, _LENGTH, spec.dim)))
    chosen = (spec.outputs or 0) if spec.shows == "chosen" else 0
    length = int(min(_LENGTH, spec.domain.length_limit - chosen))
    ids = rng.choice(spec.allowed, (_TOGETHER, length))
    return Probes(np.concatenate([np.tile(spec.allowed[:chosen], (_TOGETHER, 1)), ids], axis=1))


def _aligned(answers: list[Array], spec: OracleSpec) -> Array:
    """Answers (copies, entries) to one question; of the likeliest tokens, those that every answer names."""
    if spec.shows != "top":
        return np.concatenate(answers)
    k = (spec.outputs or 2) // 2
    named = [dict(zip(y[0, :k].tolist(), y[0, k:].tolist(), strict=True)) for y in answers]
    shared = sorted(set.intersection(*map(set, named)))
    return np.array([[shown[token] for token in shared] for shown in named])
