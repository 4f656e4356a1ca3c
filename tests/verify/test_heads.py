"""Several heads behind a narrow format: right copies are accepted with errors that hold, wrong ones are refused, and
what rounding hides is said to be unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import verify
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance
from unsoftmax.models import explanations
from unsoftmax.oracles import Stack
from unsoftmax.results.recovery import Claim
from unsoftmax.run import engine

M, L = us.models, us.learners
KINDS = ["value", "gradient", "attention"]


def checked(model: us.models.Model, target: us.models.Model, kind: str) -> verify.Checked:
    oracle = us.oracle(target.astype("float32"), kind=kind, dtype="float32")
    return engine.run(verify.check(model, oracle.spec, 0), Stack(oracle))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [8, 12])
def test_four_heads_in_float32_are_recovered_with_an_error_that_holds(kind: str, d: int) -> None:
    for seed in (42000, 42001, 42002):
        stored = M.MultiHead.random(d, 4, norm=2.0, seed=seed).astype("float32")
        recovery = us.recover(us.oracle(stored, kind=kind, dtype="float32"), L.MultiHead(), seed=seed)
        stated = recovery.certificate.stated_error
        assert us.models.distance(recovery.model, stored.astype("float64")) <= stated < 0.5


def wrong(target: us.models.MultiHead, how: str) -> us.models.MultiHead:
    rng = np.random.default_rng(5)
    W, v = target.W.copy(), target.v.copy()
    if how == "a head off by a tenth":
        E = rng.standard_normal(W[1].shape)
        W[1] += 0.1 * np.linalg.norm(W[1]) / np.linalg.norm(E) * E
    elif how == "a sixth of a head":
        other = rng.random(W[2].shape) < 1 / 6
        W[2][other] = rng.standard_normal(other.sum()) * W[2].std()
    elif how == "values of two heads swapped":
        v[[0, 3]] = v[[3, 0]]
    elif how == "values moved from head to head":
        v[0], v[1] = v[0] + 0.05 * v[2], v[1] - 0.05 * v[2]
    else:
        W, v = W[1:], v[1:]
    return us.models.MultiHead(W, v)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "how",
    [
        "a head off by a tenth",
        "a sixth of a head",
        "values of two heads swapped",
        "values moved from head to head",
        "a head missing",
    ],
)
def test_float32_hides_no_wrong_head(kind: str, how: str) -> None:
    for seed in range(4):
        target = M.MultiHead.random(10, 4, norm=2.0, seed=seed)
        claims = checked(wrong(target.astype("float32").astype("float64"), how), target, kind).gaps
        # Refused for what was seen, not for what could not be.
        assert any(not claim.holds and math.isfinite(claim.bound) for claim in claims)


@pytest.mark.parametrize("kind", ["gradient", "attention"])
@pytest.mark.parametrize("how", ["a head off by a tenth", "a sixth of a head", "values of two heads swapped"])
def test_four_decimals_hide_no_wrong_head(kind: str, how: str) -> None:
    target = M.MultiHead.random(10, 4, norm=2.0, seed=2)
    of = getattr(explanations, kind)

    def rounded(X):
        return np.round(target(X), 4), np.round(of(target, X), 4)

    for declared in (5e-5, 0.0):
        oracle = us.oracle(rounded, 10, kind=kind, tolerance=declared, name="rounded")
        allows = Allowance(Claim(RELATIVE_ERROR, 1e-2), noise=5e-5)
        assert engine.run(verify.check(target, oracle.spec, 0, allows), Stack(oracle)).holds
        assert not engine.run(verify.check(wrong(target, how), oracle.spec, 0, allows), Stack(oracle)).holds


@pytest.mark.parametrize("kind", ["gradient", "attention"])
def test_explanations_show_heads_closer_than_their_values_do(kind: str) -> None:
    target = M.MultiHead.random(10, 4, norm=2.0, seed=3)
    stored = target.astype("float32").astype("float64")
    bounds = {}
    for shown in ("value", kind):
        claims = checked(stored, target, shown)
        assert claims.holds
        bounds[shown] = [claim.bound for claim in claims.gaps if claim.name.startswith("head")]
    assert max(bounds[kind]) < max(bounds["value"]) / 2


def test_maps_are_told_apart_by_what_they_show_and_not_by_their_order() -> None:
    target = M.MultiHead.random(8, 3, norm=2.0, seed=4)
    turned = M.MultiHead(target.W[[2, 0, 1]], target.v[[2, 0, 1]])
    oracle = us.oracle(target, kind="attention")
    assert engine.run(verify.check(turned, oracle.spec, 0), Stack(oracle)).holds


def test_a_head_that_drowns_in_rounding_is_unknown_and_not_outside_the_class() -> None:
    target = M.MultiHead.random(8, 2, norm=2.0, seed=1)
    weak = M.MultiHead(target.W, target.v * np.array([[1.0], [1e-6]])).astype("float32")
    found = checked(weak.astype("float64"), weak, "value")
    failed = [claim for claim in found.claims if not claim.holds]
    assert failed
    assert all(math.isinf(claim.bound) for claim in failed)
    assert any(claim.name == "head 2" and "drown" in claim.statement for claim in failed)


def test_a_model_that_answers_leave_open_is_refused_as_that() -> None:
    target = M.MultiHead.random(8, 2, norm=2.0, seed=1)
    weak = M.MultiHead(target.W, target.v * np.array([[1.0], [1e-6]])).astype("float32")

    class Told:
        """A learner that is told the target: verification alone has to say what float32 shows of it."""

        def forecast(self, spec):
            return L.Forecast({"main": 1}, extra=0, model=M.MultiHead, heads=(2, 2))

        def program(self, spec, seed):
            yield us.probes.Probes(np.ones((1, 1, spec.dim)), phase="main")
            return L.Outcome(weak.astype("float64"))

    with pytest.raises(us.errors.NotIdentifiable, match="drown") as refused:
        us.recover(us.oracle(weak, dtype="float32"), Told())
    assert refused.value.code is us.errors.Code.UNDETERMINED
    assert refused.value.recovery.status is us.Status.NOT_IDENTIFIABLE


def test_values_that_float32_left_off_are_not_taken_for_wrong_scores() -> None:
    """Jumps showed values only to 1e-4 to 1e-3, as they had said themselves."""
    for seed in (45000, 45003, 45005):
        stored = M.MultiHead.random(14, 4, norm=2.0, seed=seed).astype("float32")
        recovery = us.recover(us.oracle(stored, dtype="float32"), L.MultiHead(), seed=seed)
        assert us.models.distance(recovery.model, stored.astype("float64")) <= recovery.certificate.stated_error < 0.5
