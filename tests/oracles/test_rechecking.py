"""Targets that answer the same question differently are noticed, measured, and treated as configured."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.errors import InvalidArgument, ModelMismatch, OracleError
from unsoftmax.oracles import Recheck

LEARNER = us.learners.SingleHead()
HEAD = us.models.SingleHead.random(8, norm=2.0, seed=2)


def noisy(size, seed=0):
    rng = np.random.default_rng(seed)
    return us.oracle(lambda tokens: HEAD(tokens) + size * rng.uniform(-1, 1, len(tokens)), 8, max_norm=8.0)


def drifting(speed):
    received = [0]

    def fn(tokens):
        received[0] += len(tokens)
        return HEAD(tokens) * (1 + speed * received[0])

    return us.oracle(fn, 8)


def test_a_deterministic_target_is_told_to_be_one():
    recovery = us.recover(us.oracle(HEAD, max_batch=7), LEARNER, recheck=Recheck(every=50, sample=3))
    again = recovery.usage.phases["recheck"]
    assert again >= 3 * 3
    assert f"{again} sequences were asked again and answered the same." in recovery.notes
    assert recovery.usage.billed == recovery.usage.asked + again


def test_without_a_rule_nothing_is_asked_again():
    assert "recheck" not in us.recover(us.oracle(HEAD), LEARNER).usage.phases


@pytest.mark.parametrize("make", [lambda: noisy(1e-6), lambda: drifting(1e-7)], ids=["random", "drift"])
def test_stop(make):
    with pytest.raises(OracleError, match="not deterministic") as error:
        us.recover(make(), LEARNER, recheck=Recheck(every=32))
    assert 1e-9 < error.value.gap < 1e-2
    assert error.value.recovery.status is us.Status.TARGET_FAILED
    # Each of the four was in doubt, and asked once more.
    assert error.value.recovery.usage.phases["recheck"] == 8


def rounded_by_the_batch(heads):
    """Sums are taken in an order that depends on the size of the batch, as a matrix product does."""

    def fn(tokens):
        order = np.random.default_rng(len(tokens)).permutation(heads.dim)
        return us.models.MultiHead(heads.W[:, order][:, :, order], heads.v[:, order])(tokens[..., order])

    return us.oracle(fn, heads.dim)


@pytest.mark.parametrize("seed", range(3, 9))
def test_terms_that_cancel_round_differently_in_another_batch(seed):
    heads = us.models.MultiHead.random(8, 2, norm=2.0, seed=seed)
    learner = us.learners.MultiHead()
    recovery = us.recover(rounded_by_the_batch(heads), learner, seed=seed, recheck=Recheck(every=64, sample=8))
    assert any("answered the same" in note for note in recovery.notes)


@pytest.mark.parametrize("change", [1e-8, 1e-3])
def test_another_model_behind_the_same_address_is_noticed(change):
    received = [0]

    def fn(tokens):
        received[0] += len(tokens)
        return HEAD(tokens) * (1 + change * (received[0] > 40))

    with pytest.raises(OracleError, match="not deterministic"):
        us.recover(us.oracle(fn, 8, max_batch=16), LEARNER, recheck=Recheck(every=50, sample=16))


def test_drift_shows_in_the_mean_change():
    recovery = us.recover(drifting(1e-19), LEARNER, recheck=Recheck(every=32, then="report"))
    assert any("answered the same" in note for note in recovery.notes)
    with pytest.raises((ModelMismatch, us.errors.NotIdentifiable)) as error:
        us.recover(drifting(1e-4), LEARNER, recheck=Recheck(every=32, then="report"))
    assert "answered differently" in " ".join(error.value.recovery.notes)


def test_approximate_treatment():
    recovery = us.recover(noisy(1e-7), LEARNER, recheck=Recheck(every=32, then="approximate"))
    assert recovery.status is us.Status.RECOVERED
    assert any("treated as approximate" in note for note in recovery.notes)
    assert us.models.distance(recovery.model, HEAD) < 1e-4


def test_a_refused_model_says_whether_the_target_contradicts_itself():
    with pytest.raises((ModelMismatch, us.errors.NotIdentifiable)) as error:
        us.recover(noisy(1e-3), LEARNER)
    assert error.value.code is us.errors.Code.UNREPEATABLE
    assert str(error.value).startswith("the target is not deterministic")
    two = us.models.MultiHead.random(8, 2, norm=2.0, seed=5)
    with pytest.raises(ModelMismatch) as error:
        us.recover(us.oracle(two), LEARNER)
    assert not hasattr(error.value, "__notes__")


def test_the_budget_holds_for_repetitions_too():
    whole = us.recover(us.oracle(HEAD), LEARNER).usage.billed
    received = [0]

    def fn(tokens):
        received[0] += len(tokens)
        return HEAD(tokens)

    for every in (10**9, 60):
        received[0] = 0
        try:
            usage = us.recover(us.oracle(fn, 8), LEARNER, budget=whole + 2, recheck=Recheck(every, sample=8)).usage
        except us.errors.BudgetExceeded as error:
            assert every == 60
            usage = error.recovery.usage
        assert received[0] == usage.billed <= whole + 2


def test_parameters_are_checked():
    for wrong in ({"every": 0}, {"sample": 0}, {"then": "panic"}):
        with pytest.raises(InvalidArgument):
            Recheck(**wrong)


def test_float32_rounded_by_the_batch_is_no_change_though_nobody_declared_it():
    """A trained layer computed in float32 had been called not deterministic over gaps of 3e-8."""
    heads = us.models.MultiHead.random(24, 3, norm=2.0, seed=1)

    def fn(tokens):
        order = np.random.default_rng(len(tokens)).permutation(24)
        turned = us.models.MultiHead(heads.W[:, order][:, :, order], heads.v[:, order]).astype("float32")
        return turned(tokens[..., order])

    recovery = us.recover(
        us.oracle(fn, 24), us.learners.MultiHead(), recheck=Recheck(every=100, then="report"), verify=False
    )
    assert not any("differently" in note for note in recovery.notes)
