"""A learner that diagnoses first: what `recover` uses when none is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsoftmax import verify as verification
from unsoftmax.diagnosis.answers import QUERIES
from unsoftmax.diagnosis.choice import candidates, learner_of
from unsoftmax.diagnosis.examine import allowance, examine
from unsoftmax.diagnosis.findings import CODES, Diagnosis
from unsoftmax.diagnosis.tokens import token_range
from unsoftmax.errors import BudgetExceeded, Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Forecast, Learner, Program, configuration
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Automatic:
    """Diagnose, choose the learner, run it. The diagnosis is billed as its own phase and stands in the notes."""

    def forecast(self, spec: OracleSpec) -> Forecast:
        """The diagnosis, and the cheapest and the dearest of the learners that such a target may turn out to need."""
        possible = [cost for _, cost in _costs(spec)]
        if not possible:
            return Forecast(verification=0)
        ranges = {
            "diagnosis": diagnosis_range(spec),
            "chosen learner": (min(low for low, _, _ in possible), max(high for _, high, _ in possible)),
        }
        supposing = ", ".join(dict.fromkeys(part for _, _, words in possible for part in words.split(", ") if part))
        return Forecast(ranges=ranges, supposing=supposing, verification=0)

    def choices(self, spec: OracleSpec) -> dict[str, tuple[int, int]]:
        """The interval of every learner that may be chosen, verification included: which one it is decides the bill."""
        found: dict[str, tuple[int, int]] = {}
        for learner, (low, high, _) in _costs(spec):
            name = type(learner).__name__
            least, most = found.get(name, (low, high))
            found[name] = min(least, low), max(most, high)
        return found

    def program(self, spec: OracleSpec, seed: int) -> Program:
        try:
            diagnosis = yield from examine(spec, seed)
        except BudgetExceeded as refusal:
            if refusal.limit is None:
                raise
            _, most = diagnosis_range(spec)
            raise BudgetExceeded(
                f"the budget of {refusal.limit:g} does not suffice: the diagnosis takes up to {most} queries before "
                f"any learner begins, and {refusal.reason}",
                advice=f"{refusal.advice} Or name the learner to save the diagnosis.",
                needed=refusal.needed,
                limit=refusal.limit,
            ) from refusal
        if diagnosis.learner is None:
            if diagnosis.code == Code.ZERO:
                reason = "every answer is 0, as for a head with v = 0: no query shows its W."
                raise NotIdentifiable(reason, code=Code.ZERO)
            told = [*diagnosis.reasons, *map(str, diagnosis.suggestions), _observed(diagnosis)]
            raise ModelMismatch(" ".join(told), code=Code(diagnosis.code) if diagnosis.code in CODES else None)
        if diagnosis.family == "head behind labels" and spec.kind != "membership":
            raise InvalidArgument("the answers are only 0 and 1: declare the oracle with kind='membership'.")
        try:
            outcome = yield from _alone_or_several(diagnosis, spec, seed)
        except BudgetExceeded as refusal:
            if refusal.limit is None:
                raise
            raise _dearer(diagnosis, spec, refusal) from refusal
        except ModelMismatch as mismatch:
            name = type(diagnosis.learner).__name__
            words = f"{mismatch} The diagnosis chose {name}. {_observed(diagnosis)}"
            raise ModelMismatch(words, code=mismatch.code) from mismatch
        notes = (*diagnosis.sentences(), *outcome.notes)
        return replace(outcome, notes=notes, chosen=configuration(diagnosis.learner))


def _alone_or_several(diagnosis: Diagnosis, spec: OracleSpec, seed: int) -> Program:
    """The chosen learner; labels that contradict one head are those of several, if the target allows such sequences."""
    if diagnosis.family != "head behind labels":
        return (yield from diagnosis.learner.program(spec, seed))
    try:
        return (yield from diagnosis.learner.program(spec, seed))
    except ModelMismatch as alone:
        several = learner_of(diagnosis.family, heads=None)
        try:
            outcome = yield from several.program(spec, seed)
        except (ModelMismatch, DomainError):
            raise alone from None
        return replace(outcome, notes=("labels contradict one head; several were found.", *outcome.notes))


def diagnosis_range(spec: OracleSpec) -> tuple[int, int]:
    """Fewest and most queries of a diagnosis that ends with a learner."""
    if spec.shows is not None or spec.link is not None:
        return 0, 0
    if spec.vocabulary is not None:
        return token_range(spec)
    return QUERIES, QUERIES if spec.kind == "membership" else allowance(spec)


def _costs(spec: OracleSpec) -> list[tuple[Learner, tuple[int, int, str]]]:
    """What the learners cost that such a target may turn out to need."""
    costs = [(learner, _cost(learner, spec)) for learner in candidates(spec)]
    return [(learner, cost) for learner, cost in costs if cost is not None]


def _cost(learner: Learner, spec: OracleSpec) -> tuple[int, int, str] | None:
    """Fewest and most queries, verification included, and what they suppose; None for a learner that refuses."""
    try:
        forecast = learner.forecast(spec)
    except (InvalidArgument, DomainError):
        return None
    least, most = verification.interval(forecast, spec)
    # A bill without an upper end adds none: it is left out of the range in words.
    words = forecast.supposing if forecast.maximum is not None else f"another learner than {type(learner).__name__}"
    return forecast.minimum + least, (forecast.maximum or forecast.minimum) + most, words


def _dearer(diagnosis: Diagnosis, spec: OracleSpec, refusal: BudgetExceeded) -> BudgetExceeded:
    """The refusal with what the chosen learner takes, which the next call alone does not tell."""
    forecast = diagnosis.learner.forecast(spec)
    fresh, _ = verification.interval(forecast, spec)
    least = forecast.minimum + fresh
    return BudgetExceeded(
        f"the diagnosis chose {type(diagnosis.learner).__name__}, which needs at least {least} queries "
        f"beside the diagnosis, {fresh} of them for verification.",
        advice=f"the budget of {refusal.limit:g} does not suffice: raise the budget, or name the learner to save the "
        "diagnosis. Nothing beyond it was sent.",
        needed=max(least, refusal.needed or 0),
        limit=refusal.limit,
    )


def _observed(diagnosis: Diagnosis) -> str:
    """What was seen, for after the reason."""
    return f"Observed: {' '.join(finding.sentence for finding in diagnosis.findings)}"
