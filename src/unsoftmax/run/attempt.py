"""One attempt at a recovery: the program, the verification, and what any ending can report."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from unsoftmax import verify as verification
from unsoftmax.diagnosis.choice import in_noise
from unsoftmax.errors import (
    BudgetExceeded,
    Code,
    DomainError,
    ModelMismatch,
    NotIdentifiable,
    OracleError,
    UnsoftmaxError,
)
from unsoftmax.learners.core.base import Asking, Learner, Outcome, configuration
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import driven
from unsoftmax.oracles.rechecking import WIDER, Unrepeatable
from unsoftmax.oracles.stack import Stack
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array, Request, parts
from unsoftmax.results.recovery import Certificate, Claim, Recovery, Status, asked, plain
from unsoftmax.results.scope import Scope
from unsoftmax.run import lawful
from unsoftmax.run.engine import ProgressCallback, run
from unsoftmax.run.formats import Written, written
from unsoftmax.run.twin import against_twin, doubtful
from unsoftmax.spec import OracleSpec

T = TypeVar("T")
log = logging.getLogger("unsoftmax")

_RESTARTS = 3
"""Runs at most, each with the tolerance widened by the change that ended the one before: the second is nearly always
the last, for it is granted `WIDER` times the change."""

EXPLAINING = 8
"""Sequences asked again when a model is refused, to tell a random target from one outside the class; each once more
where it was answered differently."""

_REFUSED = "refused"
"""Name under which a run that ends in a contradiction settles whether every answer was its own."""

_CONTRADICTIONS = (ArithmeticError, ValueError, ModelMismatch, NotIdentifiable)
"""How a program ends whose answers do not fit each other."""


@dataclass
class Attempt:
    """A learner on a stack; `recovery` freezes what is known so far."""

    stack: Stack
    learner: Learner
    seed: int
    provenance: dict[str, Any]
    notes: tuple[str, ...] = ()
    fresh: int = 0
    """Queries that verification will ask."""
    model: Any = None
    certificate: Certificate = field(default_factory=Certificate)
    watch: ProgressCallback | None = None
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        spec = self.stack.spec
        self.scope = Scope(spec.name or "the target", spec.part, spec.position, spec.link)

    def finish(self, verify: bool) -> Recovery:
        """Run to the end; an error carries what was learned until then as `.recovery`."""
        spec, learner = self.stack.spec, self.learner
        for _ in range(_RESTARTS):
            try:
                return self._resumed(learner, spec, verify)
            except Unrepeatable as error:
                if self.stack.recheck is None or self.stack.recheck.then != "approximate" or spec.kind == "membership":
                    raise self._reported(error) from None
                spec = replace(spec, kind="approximate", tolerance=spec.tolerance + WIDER * error.gap)
                learner = in_noise(learner)
                self.stack.rechecker.spec = spec
                if self.stack.near is not None:
                    self.stack.near.epoch += 1
                self.notes += (
                    f"the target is not deterministic: treated as approximate, tolerance {spec.tolerance:.2g}, by "
                    f"{type(learner).__name__}.",
                )
            except UnsoftmaxError as error:
                if isinstance(error, (ModelMismatch, NotIdentifiable)):
                    error = self._explained(error)
                    self._offer(error)
                raise self._reported(error) from error.__cause__
            except np.linalg.LinAlgError as error:
                raise self._reported(
                    ModelMismatch(
                        f"the answers lead {type(learner).__name__} to equations that float64 does not solve ({error})",
                        advice="the target may be outside its class, or close to one that is; try another seed.",
                    )
                ) from error
            except KeyboardInterrupt:
                billed = self.stack.meter.billed
                log.warning("interrupted after %d queries; run again with the same ledger to continue", billed)
                raise
        raise self._reported(
            Unrepeatable(f"the target's answers change more and more ({self.stack.rechecker}); mend the target.")
        )

    def _resumed(self, learner: Learner, spec: OracleSpec, verify: bool) -> Recovery:
        """`_once`, and once more if it took answers of tokens that differ from those asked by rounding."""
        near, notes = self.stack.near, self.notes
        exact = spec.kind == "value" and spec.tolerance == 0 and spec.dtype == "float64"
        first: Recovery | None = None
        try:
            first = self._once(learner, spec, verify)
        except _CONTRADICTIONS:
            # Labels and short formats do not show last digits of tokens, and what a run before refused with answers of
            # its own alone stays refused.
            own = near is None or not near.used or spec.kind == "membership" or spec.eps > HALF_DIGITS
            if self.stack.settle(_REFUSED, np.array([float(own)]))[0]:
                raise
        if near is None or (first is not None and not near.used):
            assert first is not None
            return first
        # A result that was verified stands if the next does not come about; one that was refused may be near enough.
        if near.served and exact and near.follow(self.model, spec.dim):
            self.notes = notes
            with suppress(ArithmeticError, ValueError, UnsoftmaxError):
                first = self._once(learner, spec, verify)
        if first is not None:
            return replace(first, notes=(*first.notes, f"{near}."))
        # Not the target's fault, perhaps: what is not known for these very tokens is paid.
        near.limit = 0.0
        self.notes = (*notes, f"{near}, until they contradicted each other: then they were asked again.")
        try:
            return self._once(learner, spec, verify)
        except _CONTRADICTIONS:
            self.stack.settle(_REFUSED, np.ones(1))
            raise

    def _once(self, learner: Learner, spec: OracleSpec, verify: bool) -> Recovery:
        self.stack.rewind()
        self.stack.reserved = self.fresh if verify else 0
        outcome = run(learner.program(spec, self.seed), self.stack, self.watch)
        self._learned(outcome)
        rule = self.stack.recheck
        # Before verification, which would only say that something is wrong, and not at its cost.
        reserved = self.fresh if verify else 0
        if rule is not None and self.stack.meter.billed and self.stack.room() >= reserved + rule.sample:
            self.stack.rechecker.check(rule.sample)
        if not verify:
            return self.recovery(Status.UNVERIFIED)
        self.stack.reserved = 0
        checking = verification.check(outcome.model, spec, self.seed, outcome.allows)
        checked = run(self._scoped(checking), self.stack, self.watch)
        self.certificate = Certificate(verification.joined(outcome, checked))
        if self.certificate.holds and self.written is None and doubtful(self.certificate, outcome.model, spec):
            self.certificate = against_twin(self.certificate, outcome.model, spec, learner, self.seed)
        if self.certificate.holds:
            return self.recovery(Status.RECOVERED)
        chosen = str((outcome.chosen or configuration(learner))["learner"])
        exact = spec.dtype == "float64" and spec.tolerance == 0
        kind, own = type(outcome.model).__name__, outcome.allows.parameters
        refusal = _refusal(self.certificate, kind, chosen, own, self.written, exact)
        if self.written is None and self.stack.room() >= lawful.QUERIES:
            refusal = run(lawful.lawful(refusal, outcome.model, spec, self.seed), self.stack, self.watch)
        raise refusal

    @property
    def written(self) -> Written | None:
        """How answers are written, where that is coarser than declared."""
        return written(self.stack.rechecker.answers, self.stack.spec, in_noise(self.learner))

    def _scoped(self, program: Asking[T]) -> Asking[T]:
        """The program as it is, while the inputs it asks become part of the scope."""

        def ask(request: Request) -> Asking[Array]:
            for part in parts(request):
                self.scope = self.scope.with_probes(part.tokens, part.lengths)
            y = yield request
            return y

        return driven(program, ask)

    def _learned(self, outcome: Outcome) -> None:
        self.model = outcome.model
        self.notes += outcome.notes
        self.certificate = Certificate(outcome.stated)
        if outcome.chosen is not None:
            self.provenance = self.provenance | {"chosen": plain(outcome.chosen)}

    def _explained(self, error: UnsoftmaxError) -> UnsoftmaxError:
        """The refusal, or that the target contradicts itself: then no class fits, and the refusal hangs on chance."""
        checker = self.stack.rechecker  # the first error is the one to tell; what was measured is in the note
        with suppress(UnsoftmaxError):
            if self.stack.meter.billed:
                checker.check(EXPLAINING)
        if checker.changed:
            told = type(error)(
                f"the target is not deterministic: {checker}. What the answers say of its class need not hold then: "
                f"{error.reason}",
                advice="declare the noise (tolerance=) for learners that read noisy answers, or mend the target.",
                code=Code.UNREPEATABLE,
            )
            told.model, told.__cause__ = error.model, error.__cause__
            return told
        form = self.written
        if self.stack.room() >= lawful.AFFINE_QUERIES:
            coarse = 0.0 if form is None else form.error
            asking = lawful.affine_terms(error, self.learner, self.stack.spec, self.seed, coarse)
            with suppress(OracleError, BudgetExceeded):
                error = run(asking, self.stack, self.watch)
        if error.code is not Code.CONTRADICTED and form is not None:
            error.add_note(f"Note that {form.reason}; {form.advice}.")
        return error

    def _offer(self, error: UnsoftmaxError) -> None:
        """Parts of the target that may be of a class where the whole is of none."""
        if self.stack.spec.parts:
            names = " or ".join(repr(name) for name in self.stack.spec.parts)
            error.add_note(f"The whole of {self.scope.target} was asked; to ask a part, pass part={names} (--part).")

    def _reported(self, error: UnsoftmaxError) -> UnsoftmaxError:
        self.model = error.model if self.model is None else self.model
        error.recovery = self.recovery(_status(error))
        return error

    def recovery(self, status: Status) -> Recovery:
        """What is known now, as a result."""
        checker = self.stack.rechecker
        told = checker.repeated and not (checker.rule is not None and checker.rule.then == "expect")
        notes = (*self.notes, asked(self.scope), *((f"{checker}.",) if told else ()))
        held = replace(self.certificate, scope=self.scope)
        return Recovery(self.model, status, self.stack.meter.snapshot(), held, self.provenance, notes)


_EITHER = "A layer whose scores are too strong or too unequal, and a target outside the class, look alike from there."


def _refusal(
    certificate: Certificate, model: str, learner: str, own: Claim | None, form: Written | None, exact: bool
) -> UnsoftmaxError:
    """Why a certificate does not hold: fresh answers contradict the model, or leave its weights unknown.

    own     what the learner itself states of the weights: where that is nothing, a model that is off speaks of the
            conditioning, or of coarse answers (not `exact`), and not against the class.
    form    how answers are written, where that is coarser than declared
    """
    failed = [claim for claim in certificate.claims if not claim.holds]
    seen = [f"{c.name}: {c.observed:.2g} where {c.bound:.2g} was allowed" for c in failed if isfinite(c.bound)]
    if not seen:
        unknown = "; ".join(f"{claim.name} {claim.statement}" for claim in failed) or "no claim could be checked"
        return NotIdentifiable(
            f"the recovered {model} answers like the target, but the answers do not determine its weights ({unknown}). "
            "Allow longer tokens (max_norm), or give answers with more digits.",
            advice="the model is in .recovery.",
            code=Code.UNDETERMINED,
        )
    if own is not None and own.bound >= CORE.unknown_error:
        coarse, digits = ("", _EITHER) if exact else (" from answers this coarse", "Give answers with more digits.")
        return NotIdentifiable(
            f"the probes do not determine the weights of this {model}{coarse}: by their conditioning weights may be "
            f"off by {own.bound:.1g} times their size, and fresh queries show it ({'; '.join(seen)}). {digits}",
            advice="the rejected model is in .recovery.",
            code=Code.UNDETERMINED,
        )
    gaps = [claim.observed for claim in failed if claim.observed is not None]
    if form is not None and max(gaps, default=0.0) < CORE.loud * form.error:
        return ModelMismatch(
            f"{form.reason}: fresh queries contradict the recovered {model} as exact answers must not "
            f"({'; '.join(seen)}), for the rounding alone or because the target is outside the class {learner} learns.",
            advice=f"{form.advice}; the rejected model is in .recovery.",
            code=Code.CONTRADICTED,
        )
    return ModelMismatch(
        f"the target is outside the class {learner} learns, or noisier than declared: fresh queries contradict the "
        f"recovered {model} ({'; '.join(seen)}).",
        advice="the rejected model is in .recovery.",
        code=Code.CONTRADICTED,
    )


def _status(error: UnsoftmaxError) -> Status:
    match error:
        case BudgetExceeded():
            return Status.BUDGET_EXHAUSTED
        case OracleError() | DomainError():
            return Status.TARGET_FAILED
        case NotIdentifiable():
            return Status.NOT_IDENTIFIABLE
        case ModelMismatch():
            return Status.MISMATCH
        case _:
            return Status.FAILED
