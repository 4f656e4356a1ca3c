"""Targets over token ids: the learner of token heads is tried on a few of the ids, and held against fresh sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.diagnosis.answers import PHASE
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion
from unsoftmax.diagnosis.sketch import Meter, Refusal, TooDearError, limited
from unsoftmax.errors import Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.driver import driven
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes, Request
from unsoftmax.spec import Domain, OracleSpec

_IDS = 12
"""Ids of the sketch: all pairs of them are 144 queries, and a head over a vocabulary is one over any part of it."""

_ALLOWED = 360
"""Most queries of the sketch: twelve ids with their repairs took 280 at most."""

_LENGTHS = (2, 3, 5, 9)
"""Lengths of fresh sequences of ids; the longer ones show what pairs do not."""

_PER_LENGTH = 6
"""Fresh sequences of each length."""

_OFF = 0.05
"""Share of the values' spread by which fresh answers may be off: rounding to two decimals stays below, and no other way
of mixing tokens that was tried did."""


def token_range(spec: OracleSpec) -> tuple[int, int]:
    """Fewest and most queries of this diagnosis: the ids alone, and all that the sketch may ask."""
    return min(_IDS, len(spec.allowed)), _ALLOWED


def over_tokens(spec: OracleSpec, seed: int) -> Asking[Diagnosis]:
    """A token head if a sketch of a few ids explains fresh sequences of them; else outside, with the reason."""
    access = Finding("access", "token ids", "The target takes token ids.")
    if spec.outputs is not None:
        words = f"each answer is {spec.outputs} numbers, and a head over token ids is learned from one number"
        reason = f"No learner is chosen: {words}; ask one column of the answers as a target of its own."
        return Diagnosis("outside", None, (access,), (reason,), code="outputs")
    rng = np.random.default_rng([seed, 0x70D1])
    ids = rng.permutation(spec.allowed)[:_IDS]
    small = replace(spec, vocabulary=len(ids), domain=Domain(max_length=spec.domain.max_length))
    try:
        off = yield from _renamed(limited(_tried(small, seed), Meter(_ALLOWED)), ids)
    except (ModelMismatch, NotIdentifiable, DomainError, InvalidArgument, TooDearError) as refusal:
        return _refused(access, refusal)
    evidence = {"ids": len(ids), "off": off}
    if off > _OFF:
        found = Finding(
            "token head", False, f"Fresh sequences are off by {off:.1e} of the values' spread.", None, evidence
        )
        reason = "No learner is chosen: the answers are no weighted mean of token values, with softmax of their scores"
        return Diagnosis("outside", None, (access, found), (f"{reason}.",), code="tokens")
    found = Finding("token head", True, f"A head over {len(ids)} of the ids explains fresh sequences.", None, evidence)
    return Diagnosis("token head", learner_of("token head"), (access, found))


def _refused(access: Finding, refusal: Refusal) -> Diagnosis:
    """No learner: the reason, and the one to name where a few ids do not decide."""
    named: tuple[Suggestion, ...] = ()
    if isinstance(refusal, (NotIdentifiable, TooDearError)):
        words = "a few ids do not show their scores; all of them may, through one another"
        named = (Suggestion(words, learner_of("token head")),)
    elif refusal.code in (Code.ORDER, Code.NOISE):
        words = "pairs in one arrangement are learned where order matters"
        named = (Suggestion(words, learner_of("token head", positions="fixed")),)
    found = Finding("token head", False, "A weighted mean of token values does not explain the answers.")
    reason = f"No learner is chosen: {refusal}"
    return Diagnosis("outside", None, (access, found), (reason,), code="tokens", suggestions=named)


def _tried(spec: OracleSpec, seed: int) -> Asking[float]:
    """Largest gap of a learned head on fresh sequences, as a share of the spread of values."""
    learner = learner_of("token head")
    learner.forecast(spec)
    outcome = yield from learner.program(spec, seed)
    model: Model = outcome.model
    rng = np.random.default_rng([seed, 0x70D2])
    known: Array = np.asarray(model.known)  # type: ignore[attr-defined]
    worst = 0.0
    for length in (n for n in _LENGTHS if n <= spec.domain.length_limit):
        tokens = rng.choice(known, (_PER_LENGTH, length))
        y = yield Probes(tokens)
        worst = max(worst, float(np.abs(model(tokens) - y).max()))
    spread = float(np.ptp(np.asarray(model.values)[known]))  # type: ignore[attr-defined]
    return worst / spread if spread else float(worst > 0)


def _renamed(program: Asking[float], ids: Array) -> Asking[float]:
    """A program over 0..n-1 as one over these ids."""

    def ask(request: Request) -> Asking[Array]:
        asked = request[0 : len(request)]
        y = yield replace(asked, tokens=ids[asked.tokens], phase=PHASE)
        return y

    return driven(program, ask)
