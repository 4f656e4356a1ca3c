"""A learner that diagnoses first: what `recover` uses when none is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsoftmax.diagnosis.examine import examine
from unsoftmax.diagnosis.findings import Diagnosis
from unsoftmax.errors import InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.base import Forecast, Program
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Automatic:
    """Diagnose, choose the learner, run it. The diagnosis is billed as its own phase and stands in the notes."""

    def forecast(self, spec: OracleSpec) -> Forecast:
        return Forecast({}, extra=None, verification=0)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        diagnosis = yield from examine(spec, seed)
        if diagnosis.learner is None:
            if diagnosis.family == "zero":
                raise NotIdentifiable("every answer is 0, as for a head with v = 0: no query shows its W.")
            raise ModelMismatch(_account(diagnosis))
        if diagnosis.family == "head behind labels" and spec.kind != "membership":
            raise InvalidArgument("the answers are only 0 and 1: declare the oracle with kind='membership'.")
        try:
            outcome = yield from diagnosis.learner.program(spec, seed)
        except ModelMismatch as mismatch:
            raise ModelMismatch(f"{_account(diagnosis)} The learner then refused: {mismatch}") from mismatch
        return replace(outcome, notes=(*diagnosis.sentences(), *outcome.notes))


def _account(diagnosis: Diagnosis) -> str:
    return " ".join(diagnosis.sentences())
