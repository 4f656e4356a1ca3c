"""Targets over token ids: the learner of token heads is tried on a few of the ids, and held against fresh sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.diagnosis.answers import PHASE
from unsoftmax.diagnosis.choice import learner_of
from unsoftmax.diagnosis.constants import DIAGNOSIS
from unsoftmax.diagnosis.findings import Diagnosis, Finding, Suggestion
from unsoftmax.diagnosis.sketch import Meter, Refusal, TooDearError, limited
from unsoftmax.errors import Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.driver import driven
from unsoftmax.models.base import Model
from unsoftmax.probes.base import Array, Probes, Request
from unsoftmax.spec import Domain, OracleSpec


def token_range(spec: OracleSpec) -> tuple[int, int]:
    """Fewest and most queries of this diagnosis: the ids alone, and all that the sketch may ask."""
    return min(DIAGNOSIS.sketch_ids, len(spec.allowed)), DIAGNOSIS.token_queries


def over_tokens(spec: OracleSpec, seed: int) -> Asking[Diagnosis]:
    """A token head if a sketch of a few ids explains fresh sequences of them; else outside, with the reason."""
    access = Finding("access", "token ids", "The target takes token ids.")
    if spec.outputs is not None:
        words = f"each answer is {spec.outputs} numbers, and a head over token ids is learned from one number"
        reason = f"No learner is chosen: {words}; ask one column of the answers as a target of its own."
        return Diagnosis("outside", None, (access,), (reason,), code="outputs")
    rng = np.random.default_rng([seed, 0x70D1])
    ids = rng.permutation(spec.allowed)[: DIAGNOSIS.sketch_ids]
    small = replace(spec, vocabulary=len(ids), domain=Domain(max_length=spec.domain.max_length))
    try:
        off = yield from _renamed(limited(_tried(small, seed), Meter(DIAGNOSIS.token_queries)), ids)
    except (ModelMismatch, NotIdentifiable, DomainError, InvalidArgument, TooDearError) as refusal:
        return _refused(access, refusal)
    evidence = {"ids": len(ids), "off": off}
    if off > DIAGNOSIS.token_off:
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
    for length in (n for n in DIAGNOSIS.token_lengths if n <= spec.domain.length_limit):
        tokens = rng.choice(known, (DIAGNOSIS.token_per_length, length))
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
