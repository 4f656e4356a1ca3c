"""A learner that diagnoses first: what `recover` uses when none is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsoftmax import verify as verification
from unsoftmax.diagnosis.examine import examine
from unsoftmax.diagnosis.findings import Diagnosis
from unsoftmax.errors import BudgetExceeded, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Forecast, Program, configuration
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Automatic:
    """Diagnose, choose the learner, run it. The diagnosis is billed as its own phase and stands in the notes."""

    def forecast(self, spec: OracleSpec) -> Forecast:
        return Forecast({}, extra=None, verification=0)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        try:
            diagnosis = yield from examine(spec, seed)
        except BudgetExceeded as refusal:
            if refusal.limit is None:
                raise
            raise BudgetExceeded(
                f"the budget of {refusal.limit:g} ended within the diagnosis, which takes a few hundred queries before "
                "any learner begins; raise the budget, or name the learner. Nothing beyond it was sent.",
                needed=refusal.needed,
                limit=refusal.limit,
            ) from refusal
        if diagnosis.learner is None:
            if diagnosis.family == "zero":
                raise NotIdentifiable("every answer is 0, as for a head with v = 0: no query shows its W.")
            raise ModelMismatch(_account(diagnosis))
        if diagnosis.family == "head behind labels" and spec.kind != "membership":
            raise InvalidArgument("the answers are only 0 and 1: declare the oracle with kind='membership'.")
        try:
            outcome = yield from diagnosis.learner.program(spec, seed)
        except BudgetExceeded as refusal:
            if refusal.limit is None:
                raise
            raise _dearer(diagnosis, spec, refusal) from refusal
        except ModelMismatch as mismatch:
            raise ModelMismatch(f"{_account(diagnosis)} The learner then refused: {mismatch}") from mismatch
        notes = (*diagnosis.sentences(), *outcome.notes)
        return replace(outcome, notes=notes, chosen=configuration(diagnosis.learner))


def _dearer(diagnosis: Diagnosis, spec: OracleSpec, refusal: BudgetExceeded) -> BudgetExceeded:
    """The refusal with what the chosen learner takes, which the next call alone does not tell."""
    forecast = diagnosis.learner.forecast(spec)
    fresh = verification.queries(spec) if forecast.verification is None else forecast.verification
    least = forecast.minimum + fresh
    return BudgetExceeded(
        f"the diagnosis chose {type(diagnosis.learner).__name__}, which needs at least {least} queries "
        f"beside the diagnosis, {fresh} of them for verification; the budget of {refusal.limit:g} does not suffice: "
        "raise the budget, or name the learner to save the diagnosis. Nothing beyond it was sent.",
        needed=max(least, refusal.needed or 0),
        limit=refusal.limit,
    )


def _account(diagnosis: Diagnosis) -> str:
    return " ".join(diagnosis.sentences())
