"""One cell of the ladder: the learner for what the attacker sees, its run, and the verdict on the copy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from math import floor
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax import models
from unsoftmax import verify as verification
from unsoftmax.auditing.advice import NOT_WITHIN
from unsoftmax.auditing.attacks import Way, averaged_ways, in_turn, read_logs
from unsoftmax.auditing.constants import AUDITING
from unsoftmax.auditing.keeping import Remembered, write_cell
from unsoftmax.auditing.ladder import Scenario, capped, same
from unsoftmax.diagnosis.automatic import Automatic
from unsoftmax.diagnosis.choice import through
from unsoftmax.errors import BudgetExceeded, InvalidArgument, OracleError, UnsoftmaxError
from unsoftmax.learners import Approximate, LowRank, Membership, SingleHead
from unsoftmax.learners.core.base import Asking, Learner
from unsoftmax.models.base import Model
from unsoftmax.models.distance import distance
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.rechecking import Recheck
from unsoftmax.oracles.recording import MemoryStore
from unsoftmax.oracles.semantic import Unexplained
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.access import LABELS, RECORDED
from unsoftmax.results.audit import CLOSE, EXACT, OWN_LIMIT, Cell, leak_of
from unsoftmax.results.recovery import Recovery, Status, Usage, asked
from unsoftmax.run.engine import Progress
from unsoftmax.run.engine import run as run_program
from unsoftmax.run.recovery import recover
from unsoftmax.spec import EXPLAINED, OracleSpec

_OUT_OF_SCOPE = (Status.MISMATCH.value, Status.NOT_IDENTIFIABLE.value)
"""Endings that say that no learner here speaks of this target, not that it is safe."""

_AVERAGED = 2 * CLOSE
"""Error of W, in Frobenius norm, that averaging is asked for: a close copy of scores of norm 2. It is a bound; heads of
norm 2 and d = 4 to 16 came out at a third of it or less."""

_PARTS = (models.AttentionBehind, models.HeadsBehind, models.LayerBehind)
"""Models of the attention inside a target, which do not answer as the target does."""

_INSIDE = "the attention inside it"
"""What such a copy is of."""

_STATED = "The copy is of the attention alone: its error is the one that the recovery states."

_SCALE = "Labels do not show the scale of v: it is not recovered, and errors are stated without it."


@dataclass(frozen=True)
class Case:
    """What all cells share: the target, the attack on exact answers, the owner's truth, and where cells are kept."""

    oracle: Oracle
    base: Learner
    truth: Model | None
    unknowns: int
    budget: Budget
    seed: int
    home: Path | None


def attempt(case: Case, scenario: Scenario, stop: threading.Event | None = None) -> tuple[Cell, Recovery | None]:
    """Run the best learner for this access and defence; every typed failure is a finding. `stop` interrupts it."""
    name, reason, recovery, limited = "none", "", None, False

    def watch(_: Progress) -> None:
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt

    try:
        defended = scenario.wrap(case.oracle)
        if scenario.access == RECORDED:
            name = "reader of logs"
            recovery = read_logs(defended, case.base, case.unknowns, case.budget, case.seed, watch)
        else:
            learner = _learner(case, scenario, defended)
            name = "none" if isinstance(learner, Automatic) else type(learner).__name__
            recovery = in_turn(*_ways(case, scenario, defended, learner, watch))
        # What was asked stands in the certificate, and is the same for all cells but for their limits.
        scope = recovery.certificate.scope
        notes = [note for note in recovery.notes if scope is None or note != asked(scope)]
        reason = " ".join(note if note.endswith(".") else f"{note}." for note in notes)
    except BudgetExceeded as refusal:
        recovery, limited = refusal.recovery, _own_limit(case, scenario, refusal)
        beyond = f"{NOT_WITHIN}; it needs at least {refusal.needed:,} queries."
        reason = beyond if limited else f"the budget does not suffice: {refusal.reason}"
    except OracleError as failure:
        # A target that is down says nothing about the defence.
        if scenario.wrap is same or of_source(case.oracle, "remote", False):
            raise
        reason, recovery = str(failure), failure.recovery
    except UnsoftmaxError as failure:
        # What a Python user may do with the rejected model says nothing to the reader of a page.
        reason, recovery = failure.reason, failure.recovery
    cell = _judged(case, scenario, recovery, name, reason)
    cell = replace(cell, status=OWN_LIMIT) if limited else cell
    if scenario.defence == "none" and cell.leak == "none" and cell.status in _OUT_OF_SCOPE:
        cell = replace(cell, leak="unknown")
    if case.home is not None:
        if recovery is not None:
            recovery.save(case.home / f"{scenario.slug}.safetensors")
        write_cell(case.home / f"{scenario.slug}.json", cell)
    return cell, recovery


def untried(scenario: Scenario) -> tuple[Cell, None]:
    """A way in that is not tried: the target is out of scope where nothing defends it."""
    reason = "Not tried: the target is out of scope, so a failure would say nothing about the defence."
    cell = Cell(
        scenario.access, scenario.defence, "none", "not tried", "unknown", 0, 0, 0.0, 0.0, None, None, reason
    )  # fmt: skip
    return cell, None


def _own_limit(case: Case, scenario: Scenario, refusal: BudgetExceeded) -> bool:
    """Whether the user's own limit ended a cell, which is no merit of the defence."""
    own = case.budget
    share = None if scenario.budget_share is None else floor(scenario.budget_share * case.unknowns)
    by_share = share is not None and refusal.limit == share != own.queries
    return refusal.needed is not None and own != Budget() and not by_share


def _learner(case: Case, scenario: Scenario, defended: Oracle) -> Learner:
    averaged = _AVERAGED if scenario.stochastic and defended.spec.dim <= AUDITING.largest else None
    return through(case.base, defended.spec, labels=EXACT, averaged=averaged)


def _ways(case: Case, scenario: Scenario, defended: Oracle, learner: Learner, watch: Any) -> tuple[list[Way], Usage]:
    """What an attacker tries in turn; explanations whose digits do not suffice are left aside for the values."""
    run = partial(_recovered, case, scenario, learner, watch)
    if scenario.stochastic and learner == case.base:
        ways, spent = averaged_ways(defended, case.seed, run)
    else:
        ways, spent = [Way(_steep(defended, learner), run)], Usage()
    if defended.spec.kind in EXPLAINED:
        plain = Unexplained(defended)
        by_values = partial(_recovered, case, scenario, _learner(case, scenario, plain), watch)
        ways.append(Way(plain, by_values, note="by the values alone"))
    return ways, spent


def _steep(defended: Oracle, learner: Learner) -> Oracle:
    """Behind a link long tokens saturate: a learner that does not know keeps to short ones."""
    if defended.spec.link is None or isinstance(learner, SingleHead | LowRank | Approximate | Membership):
        return defended
    return capped(defended, max_norm=AUDITING.short_norm)


def _recovered(
    case: Case, scenario: Scenario, learner: Learner, watch: Any, defended: Oracle, times: int = 1
) -> Recovery:
    """Run the learner; each of its questions is `times` queries of the budget."""
    share = scenario.budget_share
    limits = [
        n for n in (case.budget.queries, None if share is None else floor(share * case.unknowns)) if n is not None
    ]
    most = min(limits, default=None)
    budget = replace(case.budget, queries=None if most is None else most // times)

    # A remote target is asked some sequences again; where the defence is noise, that they differ is no surprise.
    noisy = scenario.stochastic and of_source(case.oracle, "remote", False)
    recheck = Recheck(then="expect") if noisy else None

    def run(target: Oracle, ledger: Any) -> Recovery:
        # No limit at all is None: a remote target then keeps the one that `recover` sets against a runaway.
        limits = None if budget == Budget() else budget
        return recover(target, learner, seed=case.seed, budget=limits, ledger=ledger, progress=watch, recheck=recheck)

    # The same sequence is paid once in either case, so a kept audit and one in memory have the same bill.
    if case.home is None:
        return run(defended, MemoryStore())
    apart = [str(times)] * (times > 1) + ["values"] * isinstance(defended, Unexplained)
    path = case.home / f"{'-'.join([scenario.slug, *apart])}.ledger"
    resumed = path.exists()
    try:
        recovery = run(defended, path)
    except UnsoftmaxError:
        if not resumed or not path.exists():
            raise
    else:
        if not resumed:
            return recovery
    with Ledger(path) as held:
        return run(Remembered(defended, held), MemoryStore())


def _judged(case: Case, scenario: Scenario, recovery: Recovery | None, learner: str, reason: str) -> Cell:
    queries = recovery.usage.billed if recovery else 0
    tokens = recovery.usage.tokens if recovery else 0
    model = recovery.model if recovery else None
    part = isinstance(model, _PARTS) or getattr(model, "networks", None) == "unknown"
    functional = None if model is None or part else functional_error(model, case.oracle, scenario, case.seed)
    labels = scenario.access == LABELS or case.oracle.spec.kind == "membership"
    if labels and model is not None:
        reason = f"{reason} {_SCALE}".strip()
    parameter = None if model is None or case.truth is None else _parameter_error(model, case.truth, labels)
    if part and parameter is None and recovery is not None and recovery.certificate.holds:
        parameter = recovery.certificate.stated_error
        reason = f"{reason} {_STATED}".strip()
    errors = [e for e in (functional, parameter) if e is not None]
    return Cell(
        access=scenario.access,
        defence=scenario.defence,
        learner=learner,
        status=recovery.status.value if recovery else "refused",
        leak=leak_of(max(errors, default=None)),
        queries=queries,
        tokens=tokens,
        hours=0.0,
        price=0.0,
        parameter_error=parameter,
        functional_error=functional,
        reason=reason,
        part=_INSIDE if part else "",
    )


def functional_error(model: Model, oracle: Oracle, scenario: Scenario, seed: int) -> float | None:
    """Root mean square gap of copy and undefended target on fresh sequences, relative to the answers' size.

    For labels only the direction of the answers is comparable: the copy is scaled to fit first; where the target
    itself answers with labels, it is the share of labels that differ. The owner asks these queries; they are not on
    the attacker's bill.
    """
    predicted, answered = run_program(_fresh(model, oracle.spec, seed), Stack(oracle))
    if oracle.spec.kind == "membership":
        return float(np.mean((predicted > 0) != (answered > 0)))
    if oracle.spec.kind in EXPLAINED:
        answered = answered[:, 0]
    size = float(np.sqrt(np.mean(answered**2)))
    if size == 0:
        return 0.0 if not predicted.any() else None
    if scenario.access == LABELS:
        predicted = predicted * float((predicted * answered).sum() / max(float((predicted**2).sum()), 1e-300))
    return float(np.sqrt(np.mean((predicted - answered) ** 2))) / size


def _fresh(model: Model, spec: OracleSpec, seed: int) -> Asking[tuple[Array, Array]]:
    rng = np.random.default_rng([seed, 0xA0D17])
    if spec.vocabulary is not None:
        unknown = getattr(model, "forbidden", None)
        known = np.setdiff1d(np.arange(spec.vocabulary), () if unknown is None else unknown)
        tokens: Array = rng.choice(known, size=(64, int(min(6, spec.domain.length_limit))))
    else:
        tokens = verification.near_ties(model, spec, rng)
    answered = yield Probes(tokens, phase="verify")
    if isinstance(model, models.OutputLayer):
        return _explained(model, answered)
    return model(tokens), answered


def _explained(model: models.OutputLayer, logits: Array) -> tuple[Array, Array]:
    """Logits (n, V) as far as the recovered row space explains them, and they themselves, over the tokens it knows."""
    known = logits if model.tokens is None else logits[:, model.tokens]
    known = known - known.mean(axis=1, keepdims=True) if model.centred else known
    Q = np.linalg.qr(model.basis.T)[0]
    return (known @ Q) @ Q.T, known


def _parameter_error(model: Model, truth: Model, labels: bool) -> float | None:
    """Distance of the parameters; from labels modulo the scale of v, which they do not show."""
    heads = (models.SingleHead, models.LowRankHead, models.MultiHead)
    if labels and isinstance(model, heads) and isinstance(truth, heads) and np.any(model.v):
        scale = float(np.linalg.norm(truth.v)) / float(np.linalg.norm(model.v))
        model = replace(model, v=scale * model.v, constant=scale * model.constant)
    try:
        return distance(model, truth)
    except InvalidArgument:
        return None
