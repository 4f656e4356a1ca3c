"""What every registered learner must do, whatever it learns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from tests.contracts.registry import Case, collect

CASES = collect()

cases = pytest.mark.parametrize("case", CASES, ids=str)


def least(case: Case) -> int:
    """Queries that any target of the case takes; 0 where that depends on the target alone."""
    return case.learner.forecast(case.oracle(case.target()).spec).minimum


class Watched:
    """A target that counts the sequences it really receives."""

    accepts_counts = True

    def __init__(self, target):
        self.target, self.received = target, 0
        self.dim, self.outputs = target.dim, getattr(target, "outputs", None)

    def __call__(self, tokens, counts=None):
        self.received += len(tokens)
        return self.target(tokens, counts)


@cases
def test_recovers_its_own_class(case: Case) -> None:
    target = case.target()
    recovery = us.recover(case.oracle(target), case.learner)
    assert us.models.distance(recovery.model, target) <= case.error
    assert recovery.status is us.Status.RECOVERED
    assert recovery.certificate.holds


@cases
def test_bill_equals_what_the_target_received_and_the_closed_form(case: Case) -> None:
    target = Watched(case.target())
    oracle = case.oracle(target)
    usage = us.recover(oracle, case.learner).usage
    assert usage.billed == target.received == sum(usage.phases.values())
    forecast = case.learner.forecast(oracle.spec)
    for phase, queries in forecast.phases.items():
        assert usage.phases[phase] == queries
    if forecast.extra is not None:
        assert usage.phases.get("pilot", 0) + usage.phases.get("repair", 0) <= forecast.extra
    stated = us.estimate(oracle, case.learner)
    assert stated.lower <= usage.billed
    assert stated.upper is None or usage.billed <= stated.upper


@cases
def test_deterministic_and_free_on_replay(case: Case) -> None:
    oracle, store = case.oracle(case.target()), us.oracles.MemoryStore()
    first = us.recover(oracle, case.learner, seed=3, ledger=store)
    again = us.recover(oracle, case.learner, seed=3, ledger=store)
    assert again.usage.billed == 0
    assert again.usage.asked == first.usage.asked
    for name, value in first.model.parameters().items():
        assert np.array_equal(value, again.model.parameters()[name]), name


@cases
def test_chunking_and_executors_do_not_change_the_model(case: Case) -> None:
    oracle = case.oracle(case.target())
    serial = us.recover(oracle, case.learner).model.parameters()
    with ThreadPoolExecutor(2) as pool:
        parallel = us.recover(oracle, case.learner, executor=pool).model.parameters()
    for name, value in serial.items():
        assert np.array_equal(value, parallel[name]), name


@cases
def test_nan_answers_are_an_oracle_error(case: Case) -> None:
    target = case.target()

    def broken(tokens, counts=None):
        return np.full_like(np.asarray(target(tokens, counts)), np.nan)

    broken.accepts_counts, broken.dim, broken.outputs = True, target.dim, getattr(target, "outputs", None)
    with pytest.raises(us.errors.OracleError, match="nan"):
        us.recover(case.oracle(broken), case.learner)


@pytest.mark.parametrize("case", [case for case in CASES if least(case) > 1], ids=str)
def test_a_budget_that_cannot_fit_is_refused_before_the_first_query(case: Case) -> None:
    target = Watched(case.target())
    oracle = case.oracle(target)
    needed = case.learner.forecast(oracle.spec).minimum
    with pytest.raises(us.errors.BudgetExceeded) as error:
        us.recover(oracle, case.learner, budget=needed - 1)
    assert target.received == 0
    assert error.value.needed >= needed


@cache
def bill(name: str) -> int:
    """Queries of a run without a budget."""
    case = next(case for case in CASES if case.name == name)
    return us.recover(case.oracle(case.target()), case.learner).usage.billed


@cases
@settings(max_examples=10, deadline=None)
@given(fraction=st.floats(0.0, 1.2))
def test_never_more_than_the_budget(case: Case, fraction: float) -> None:
    target = Watched(case.target())
    oracle = case.oracle(target)
    whole = bill(case.name)
    budget = int(fraction * whole)
    if budget >= whole:
        us.recover(oracle, case.learner, budget=budget)
    else:
        with pytest.raises(us.errors.BudgetExceeded):
            us.recover(oracle, case.learner, budget=budget)
    assert target.received <= budget


@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case in CASES for name in case.outside], ids=lambda x: str(x)
)
def test_refuses_targets_outside_its_class(case: Case, name: str) -> None:
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)) as error:
        us.recover(case.oracle(case.outside[name]()), case.learner)
    assert error.value.recovery is not None
