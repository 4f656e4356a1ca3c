"""`audit`: run the ladder through the existing learners, judge every cell, say what a defence buys."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax import learners, theory
from unsoftmax import verify as verification
from unsoftmax.audit_result import Audit, Cell, leak_of
from unsoftmax.auditing.advice import recommendations
from unsoftmax.auditing.ladder import LABEL_ACCURACY, Scenario, ladder
from unsoftmax.engine import run as run_program
from unsoftmax.errors import BudgetExceeded, FileFormatError, InvalidArgument, UnsoftmaxError
from unsoftmax.learners.base import Asking, Learner
from unsoftmax.models.base import Model
from unsoftmax.models.distance import distance
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.identity import fingerprint, identity
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.recording import MemoryStore
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes.base import Array, Probes
from unsoftmax.recovery import recover
from unsoftmax.result import Recovery
from unsoftmax.spec import OracleSpec

CellCallback = Callable[[Cell, int, int], None]


@dataclass(frozen=True)
class Terms:
    """What queries cost the attacker and how fast they can be asked."""

    price_per_query: float = 0.0
    price_per_token: float = 0.0
    rate: float = 100.0
    currency: str = "USD"


def audit(
    oracle: Oracle,
    truth: Model | None = None,
    *,
    learner: Learner | None = None,
    scenarios: Iterable[Scenario] | None = None,
    terms: Terms | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    executor: Executor | None = None,
    progress: CellCallback | None = None,
) -> Audit:
    """Price the leak of a target you own or may test.

    truth      the true model, if the owner supplies it: parameter errors are then stated.
    learner    the attack on exact answers; None lets `recover` choose it from the undefended target.
    terms      price per query and token, and queries per second.
    folder     where finished cells, their recoveries and ledgers are kept; run again to continue.
    executor   evaluates chunks of queries in parallel.
    """
    if not isinstance(oracle, Oracle):
        raise InvalidArgument(
            f"`oracle` must be an oracle (got {type(oracle).__name__}); wrap it with us.oracle(fn, dim)."
        )
    terms = terms or Terms()
    home = None if folder is None else Path(folder)
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        _bind(home, oracle, learner, truth, seed)
    rungs = list(scenarios if scenarios is not None else ladder(oracle.spec))
    base = learner if learner is not None else _default_learner(oracle.spec)
    unknowns = _unknowns(oracle.spec, truth)
    cells: list[Cell] = []
    for scenario in rungs:
        kept = None if home is None else home / f"{scenario.slug}.json"
        if kept is not None and kept.exists():
            cell = _priced(_read_cell(kept), scenario, terms)
        else:
            cell = _cell(scenario, oracle, base, truth, unknowns, terms, seed, home, executor)
            if kept is not None:
                kept.write_text(json.dumps(asdict(cell), indent=1) + "\n")
        cells.append(cell)
        if progress is not None:
            progress(cell, len(cells), len(rungs))
    provenance = {
        "version": version("unsoftmax"),
        "seed": seed,
        "spec": asdict(oracle.spec),
        "terms": asdict(terms),
        "learner": type(base).__name__,
    }
    return Audit(
        oracle.spec.name or "target",
        oracle.spec.dim,
        unknowns,
        truth is not None,
        terms.rate,
        terms.currency,
        tuple(cells),
        tuple(recommendations(cells, terms.currency)),
        provenance,
    )


def _bind(home: Path, oracle: Oracle, learner: Learner | None, truth: Model | None, seed: int) -> None:
    """A folder belongs to one target, learner and seed; another audit must not inherit its cells."""
    spec = {name: str(value) for name, value in asdict(oracle.spec).items()}
    parameters = None if truth is None else fingerprint(truth)
    binding = {
        "target": json.loads(json.dumps(identity(oracle), default=str)),
        "truth": parameters,
        "spec": spec,
        "learner": None if learner is None else repr(learner),
        "seed": seed,
    }
    path = home / "audit-of.json"
    if not path.exists():
        path.write_text(json.dumps(binding, indent=1, sort_keys=True) + "\n")
        return
    try:
        held = json.loads(path.read_text())
    except ValueError as error:
        raise FileFormatError(f"{path} is damaged ({error}); use another folder.") from error
    differing = [name for name in binding if held.get(name) != binding[name]]
    if differing:
        raise InvalidArgument(f"{home} belongs to another audit ({', '.join(differing)} differ); use another folder.")


def _read_cell(path: Path) -> Cell:
    try:
        return Cell(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); delete it to measure this cell again.") from error


def _priced(cell: Cell, scenario: Scenario, terms: Terms) -> Cell:
    """A kept cell under today's price and rate."""
    price = cell.queries * terms.price_per_query + cell.tokens * terms.price_per_token
    return replace(cell, price=price, hours=cell.queries / (scenario.rate or terms.rate) / 3600)


def _cell(
    scenario: Scenario,
    oracle: Oracle,
    base: Learner,
    truth: Model | None,
    unknowns: int,
    terms: Terms,
    seed: int,
    home: Path | None,
    executor: Executor | None,
) -> Cell:
    defended = scenario.wrap(oracle)
    share = scenario.budget_share
    budget = None if share is None else Budget(queries=math.floor(share * unknowns))
    # The same sequence is paid once in either case, so a kept audit and one in memory have the same bill.
    ledger: Any = MemoryStore() if home is None else home / f"{scenario.slug}.ledger"
    name, reason, recovery = "none", "", None
    try:
        learner = attack(base, defended.spec)
        name = type(learner).__name__
        recovery = recover(defended, learner, seed=seed, budget=budget, ledger=ledger, executor=executor)
        reason = "; ".join(recovery.notes)
    except BudgetExceeded as refusal:
        reason, recovery = f"the budget stops the learner: {refusal}", refusal.recovery
    except UnsoftmaxError as failure:
        reason, recovery = str(failure), failure.recovery
    if home is not None and recovery is not None:
        recovery.save(home / f"{scenario.slug}.safetensors")
    return _judged(scenario, oracle, recovery, truth, terms, seed, name, reason)


def _judged(
    scenario: Scenario,
    oracle: Oracle,
    recovery: Recovery | None,
    truth: Model | None,
    terms: Terms,
    seed: int,
    learner: str,
    reason: str,
) -> Cell:
    queries = recovery.usage.billed if recovery else 0
    tokens = recovery.usage.tokens if recovery else 0
    model = recovery.model if recovery else None
    functional = None if model is None else functional_error(model, oracle, scenario, seed)
    parameter = None if model is None or truth is None else _parameter_error(model, truth)
    errors = [e for e in (functional, parameter) if e is not None]
    return Cell(
        access=scenario.access,
        defence=scenario.defence,
        learner=learner,
        status=recovery.status.value if recovery else "refused",
        leak=leak_of(max(errors, default=None)),
        queries=queries,
        tokens=tokens,
        hours=queries / (scenario.rate or terms.rate) / 3600,
        price=queries * terms.price_per_query + tokens * terms.price_per_token,
        parameter_error=parameter,
        functional_error=functional,
        reason=reason,
    )


def functional_error(model: Model, oracle: Oracle, scenario: Scenario, seed: int) -> float | None:
    """Largest gap of copy and undefended target on fresh sequences, relative to the answers' size.

    For labels only the direction of the answers is comparable: the copy is scaled to fit first. The owner asks these
    queries; they are not on the attacker's bill.
    """
    spec = oracle.spec
    predicted, answered = run_program(_fresh(model, spec, seed), Stack(oracle))
    size = float(np.sqrt(np.mean(answered**2)))
    if size == 0:
        return 0.0 if not predicted.any() else None
    if scenario.access == "labels only":
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
    return model(tokens), answered


def _parameter_error(model: Model, truth: Model) -> float | None:
    try:
        return distance(model, truth)
    except InvalidArgument:
        return None


def attack(base: Learner, spec: OracleSpec) -> Learner:
    """The best learner we have for a target of base's class seen through this spec."""
    single = isinstance(base, learners.SingleHead | learners.LowRank)
    if spec.kind == "membership":
        if not single:
            raise InvalidArgument(f"no learner is known for labels of the class {type(base).__name__} learns.")
        return learners.Membership(accuracy=LABEL_ACCURACY)
    if single and (spec.kind == "approximate" or spec.dtype == "float16"):
        return learners.Approximate()
    return base


def _default_learner(spec: OracleSpec) -> Learner:
    if spec.vocabulary is not None:
        return learners.TokenHead()
    return learners.AttentionLayer() if spec.outputs else learners.SingleHead()


def _unknowns(spec: OracleSpec, truth: Model | None) -> int:
    if truth is not None:
        return sum(int(np.size(value)) for value in truth.parameters().values())
    return theory.single_head_unknowns(spec.dim)
