"""A plan's count and its check do not part, and a class is registered in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import unsoftmax as us
from tests.contracts.registry import Case, collect
from unsoftmax import verify
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array, Model
from unsoftmax.oracles.stack import Stack
from unsoftmax.probes import Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.run.engine import run

CASES = collect()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verification_asks_as_many_as_its_plan_counts(case: Case) -> None:
    oracle = case.oracle(case.target())
    asked = us.recover(oracle, case.learner).usage.phases["verify"]
    forecast = case.learner.forecast(oracle.spec)
    least, most = verify.interval(forecast, oracle.spec)
    assert least <= asked <= most
    assert forecast.model is not None or least == most


@pytest.mark.parametrize("limit", [1, 2, 3, 4, None])
@pytest.mark.parametrize("heads", [0, 1, 2, 7])
def test_heads_are_counted_exactly_where_their_number_is_known(limit, heads) -> None:
    model = us.models.MultiHead.random(8, heads, norm=2.0, seed=1)
    oracle = us.oracle(model, max_length=limit)
    stack = Stack(oracle)
    run(verify.check(model, oracle.spec, 0), stack)
    least, most = verify.plan_of(us.models.MultiHead, oracle.spec).count(oracle.spec, (heads, heads))
    assert least <= stack.meter.billed <= most


@dataclass(frozen=True, eq=False)
class Constant(Model):
    """f(X) = a number."""

    number: float = 0.0

    @property
    def dim(self) -> int:
        return 3

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        return np.full(len(tokens), self.number)


def _check(model: Constant, spec, seed, allows) -> Asking[verify.Checked]:
    y = yield Probes(np.ones((1, 1, spec.dim)), phase="verify")
    return verify.Checked((Claim("the same number", 1e-12, float(np.abs(model(y) - y).max())),))


class Learner:
    def forecast(self, spec):
        return us.learners.Forecast({"main": 1}, extra=0, model=Constant)

    def program(self, spec, seed):
        y = yield Probes(np.zeros((1, 1, spec.dim)), phase="main")
        return us.learners.Outcome(Constant(float(y[0])))


def test_a_new_class_is_registered_in_one_place(monkeypatch) -> None:
    monkeypatch.setitem(verify.PLANS, Constant, verify.Plan(lambda spec, heads: (1, 1), _check))
    oracle = us.oracle(Constant(2.5))
    assert us.estimate(oracle, Learner()).lower == 2
    recovery = us.recover(oracle, Learner())
    assert (recovery.usage.billed, recovery.model.number) == (2, 2.5)
    with pytest.raises(us.errors.ModelMismatch, match="the same number"):
        us.recover(us.oracle(lambda X: X.sum(axis=(1, 2)), 3), Learner())


def test_a_class_that_is_not_registered_is_verified_by_what_its_oracle_answers() -> None:
    spec = us.oracle(Constant(2.5)).spec
    assert verify.plan_of(Constant, spec) is verify.plan_of(None, spec)
    assert verify.plan_of(us.models.AttentionLayer, replace(spec, outputs=4)) is not verify.plan_of(None, spec)
