"""`audit`: run the ladder through the existing learners, judge every cell, say what a defence buys.

Limits an owner can set: which price per query, or how many queries per principal and month, keep a copy dear.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unsoftmax import theory
from unsoftmax.auditing.advice import recommendations
from unsoftmax.auditing.cells import Case, attempt, untried
from unsoftmax.auditing.keeping import bind, kept_recovery, read_cell
from unsoftmax.auditing.ladder import Scenario, ladder
from unsoftmax.auditing.terms import Terms
from unsoftmax.auditing.unknowns import unknowns_of
from unsoftmax.diagnosis import Automatic, examine
from unsoftmax.errors import InvalidArgument
from unsoftmax.learners.core.base import Learner
from unsoftmax.models.base import Model
from unsoftmax.oracles.base import Oracle, of_source
from unsoftmax.oracles.identity import fingerprint, identity
from unsoftmax.oracles.ledger import Ledger
from unsoftmax.oracles.metering import Budget
from unsoftmax.oracles.stack import Stack
from unsoftmax.results.access import EXPLAINED, LABELS, RECORDED, shown
from unsoftmax.results.audit import CLOSE, Audit, Cell, Limit, rounded_up
from unsoftmax.results.evidence import evidence_of
from unsoftmax.results.recovery import Recovery
from unsoftmax.results.references import EXTRACTION, as_data
from unsoftmax.run.engine import run as run_program
from unsoftmax.run.recovery import require_run
from unsoftmax.spec import OracleSpec

CellCallback = Callable[[Cell, int, int], None]

Finished = tuple[Cell, Recovery | None]


def audit(
    oracle: Oracle,
    truth: Model | None = None,
    *,
    learner: Learner | None = None,
    scenarios: Iterable[Scenario] | None = None,
    terms: Terms | None = None,
    budget: int | Budget | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    executor: Executor | None = None,
    progress: CellCallback | None = None,
) -> Audit:
    """Price the leak of a target you own or may test.

    truth      the true model, if the owner supplies it: parameter errors are then stated.
    learner    the attack on exact answers; None diagnoses the undefended target and takes the learner of its class.
    terms      price per query and token, and queries per second.
    budget     queries (or a `Budget`) that the attacker may spend on each cell.
    folder     where finished cells, their recoveries and ledgers are kept; run again to continue.
    executor   runs cells in parallel; processes need a target and a truth that can be pickled.
    """
    require_run(oracle, learner, seed)
    if not (truth is None or isinstance(truth, Model)):
        raise InvalidArgument(f"`truth` must be a model of us.models or None (got {type(truth).__name__}).")
    if not (terms is None or isinstance(terms, Terms)):
        raise InvalidArgument(f"`terms` must be auditing.Terms or None (got {type(terms).__name__}).")
    terms = terms or Terms()
    limits = budget if isinstance(budget, Budget) else Budget(queries=budget)
    home = None if folder is None else Path(folder)
    if home is not None:
        bind(home, _binding(oracle, learner, truth, seed, limits))
    embeds = bool(of_source(oracle, "embeds", False))
    rungs = list(scenarios if scenarios is not None else ladder(oracle.spec, truth, embeds=embeds))
    if not rungs:
        raise InvalidArgument("`scenarios` must hold at least one scenario (got none).")
    base = learner if learner is not None else _diagnosed(oracle, seed, home)
    case = Case(oracle, base, truth, _unknowns(oracle.spec, truth), limits, seed, home)
    cells, undefended, unknowns = _climbed(case, rungs, terms, executor, progress)
    provenance = {
        "version": version("unsoftmax"),
        "seed": int(seed),
        "spec": asdict(oracle.spec),
        "terms": asdict(terms),
        "budget": {name: value for name, value in asdict(limits).items() if value},
        "learner": "none" if isinstance(base, Automatic) else type(base).__name__,
        "learner chosen by": "diagnosis" if learner is None else "user",
        "references": as_data(EXTRACTION),
    }
    to_set = tuple(limits_to_set(cells, terms, unknowns, oracle.spec.outputs))
    advice = recommendations(cells, terms.currency, -(-unknowns // (oracle.spec.outputs or 1)))
    return Audit(
        target=oracle.spec.name or "target",
        dim=oracle.spec.dim,
        unknowns=unknowns,
        truth_given=truth is not None,
        rate=terms.rate,
        currency=terms.currency,
        cells=tuple(cells),
        recommendations=(*advice, *(sentence(limit, terms) for limit in to_set)),
        provenance=provenance,
        evidence=None if undefended is None else evidence_of(undefended, truth),
        limits=to_set,
    )


def _climbed(
    case: Case, rungs: list[Scenario], terms: Terms, executor: Executor | None, progress: CellCallback | None
) -> tuple[list[Cell], Recovery | None, int]:
    """All cells, the recovery of the first one (the undefended target), and how many unknowns there are."""
    cells: list[Cell] = []
    undefended: Recovery | None = None
    for part in (rungs[:1], rungs[1:]):
        known = _finished(case, part, executor) if not cells or cells[0].leak != "unknown" else map(untried, part)
        for scenario, (cell, recovery) in zip(part, known, strict=True):
            undefended = undefended if cells else recovery
            cells.append(terms.applied(cell, scenario))
            if progress is not None:
                progress(cells[-1], len(cells), len(rungs))
        if undefended is not None and undefended.model is not None and case.truth is None:
            # Without the truth, the first copy says how many numbers there are.
            case = replace(case, unknowns=_unknowns(case.oracle.spec, undefended.model, undefended))
    return cells, undefended, case.unknowns


def _finished(case: Case, rungs: list[Scenario], executor: Executor | None) -> Iterator[Finished]:
    """The cells in the ladder's order: kept ones from the folder, the others run, together if there is an executor."""
    stop = threading.Event() if isinstance(executor, ThreadPoolExecutor) else None
    waiting: dict[str, Any] = {}
    if executor is not None:
        missing = [s for s in rungs if not _is_kept(case, s)]
        waiting = {s.slug: executor.submit(attempt, case, s, stop) for s in missing}
    try:
        for scenario in rungs:
            if scenario.slug not in waiting and _is_kept(case, scenario):
                assert case.home is not None
                kept = case.home / f"{scenario.slug}.json"
                yield read_cell(kept), kept_recovery(kept.with_suffix(".safetensors"))
                continue
            future = waiting.get(scenario.slug)
            yield attempt(case, scenario) if future is None else future.result()
    except BaseException:
        # Running cells leave their ledgers; those that wait are not begun.
        if stop is not None:
            stop.set()
        for future in waiting.values():
            future.cancel()
        raise


def _is_kept(case: Case, scenario: Scenario) -> bool:
    return case.home is not None and (case.home / f"{scenario.slug}.json").exists()


def _binding(oracle: Oracle, learner: Learner | None, truth: Model | None, seed: int, limits: Budget) -> dict[str, Any]:
    return {
        "target": json.loads(json.dumps(identity(oracle), default=str)),
        "truth": None if truth is None else fingerprint(truth),
        "spec": {name: str(value) for name, value in asdict(oracle.spec).items()},
        "learner": None if learner is None else repr(learner),
        "seed": int(seed),
        "budget": asdict(limits),
    }


def _diagnosed(oracle: Oracle, seed: int, home: Path | None) -> Learner:
    """The learner of the target's class; the owner asks these queries, they are not on the attacker's bill."""
    binding = {"target": identity(oracle), "diagnosis": True, "seed": seed}
    with nullcontext(None) if home is None else Ledger(home / "diagnosis.ledger", binding) as store:
        found = run_program(examine(oracle.spec, seed), Stack(oracle, store=store))
    # Where no learner fits, the refusal of a recovery without one is the finding.
    return Automatic() if found.learner is None else found.learner


def _unknowns(spec: OracleSpec, model: Model | None, recovery: Recovery | None = None) -> int:
    """Degrees of freedom of the true or the recovered model, as far as its stated error tells; d^2 + d at first."""
    if model is None:
        return theory.single_head_unknowns(spec.dim)
    stated = None if recovery is None else recovery.certificate.stated_error
    return unknowns_of(model, stated or 0.0)


def limits_to_set(cells: Sequence[Cell], terms: Terms, unknowns: int, outputs: int | None) -> Iterator[Limit]:
    """A limit for each access level that is offered and gives a close copy, from its cheapest cell."""
    floor = terms.keep_above
    if floor is None:
        return
    usable = [c for c in cells if c.offered and c.access != RECORDED and c.leak in ("exact", "close")]
    for access in dict.fromkeys(c.access for c in usable):
        cell = min((c for c in usable if c.access == access), key=lambda c: c.queries)
        fewest = min(cell.queries, _fewest(access, unknowns, outputs))
        each = cell.price / cell.queries
        yield Limit(
            access=access,
            queries=cell.queries,
            fewest=fewest,
            price=cell.price,
            query_price=theory.query_price(cell.queries, floor),
            monthly=_monthly(cell.queries, floor, each, terms.price_per_principal),
            monthly_any=_monthly(fewest, floor, each, terms.price_per_principal),
        )


def _fewest(access: str, unknowns: int, outputs: int | None) -> int:
    """Answers that hold as many numbers as there are unknowns; a label holds one bit of what a close copy needs."""
    if access.startswith(EXPLAINED):
        return 1  # an answer holds as many numbers as its sequence has
    if access == LABELS:
        return max(1, math.ceil((unknowns - 1) * math.log2(1 / CLOSE)))
    return max(1, math.ceil(unknowns / (shown(access) or outputs or 1)))


def _monthly(queries: int, floor: float, price: float, principal: float) -> int | None:
    found = theory.principal_limit(queries, floor, price, principal)
    return None if math.isinf(found) else int(found)


def sentence(limit: Limit, terms: Terms) -> str:
    """What to set, in words."""
    floor, unit = f"{terms.keep_above:,.0f} {terms.currency}", terms.currency
    asked = f"{limit.queries:,} queries are measured, and {limit.fewest:,} answers are the fewest that any method needs"
    if limit.monthly is None:
        return f"A copy by {limit.access} costs {floor} or more as it is: {limit.price:,.2f} {unit} of queries."
    price = f"a query would have to cost {rounded_up(limit.query_price)} {unit}"
    if terms.price_per_principal <= 0:
        return (
            f"To keep a copy by {limit.access} above {floor}, {price}; a limit per principal delays, and makes it "
            f"dearer only where a principal costs something (price_per_principal, --principal-price): {asked}."
        )
    each = f"{terms.price_per_principal:,.2f} {unit} a principal and month"
    if limit.monthly == 0:
        return f"No limit keeps a copy by {limit.access} above {floor} at {each}: {asked}; {price}."
    most = f"{limit.monthly:,} {'query' if limit.monthly == 1 else 'queries'}"
    return (
        f"To keep a copy by {limit.access} above {floor} at {each}, allow at most {most} per principal and month, "
        f"{limit.monthly_any or 0:,} against any method: {asked}."
    )
