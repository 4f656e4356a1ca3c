"""Labels next to the boundary: a model as good as claimed agrees, a worse one does not."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax import verify
from unsoftmax.learners.core.base import Allowance
from unsoftmax.learners.labels.asking import FLIPS, SCORE_ERROR, VALUE_ERROR
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run

ACCURACY = 1e-6


def head(d=8, seed=1):
    return us.models.SingleHead.random(d, norm=3.0, seed=seed)


def perturbed(target, W=0.0, v=0.0, seed=0):
    """Relative errors of exactly these sizes in random directions."""
    rng = np.random.default_rng(seed)
    E, e = rng.standard_normal(target.W.shape), rng.standard_normal(target.dim)
    return us.models.SingleHead(
        target.W + E * (W * np.linalg.norm(target.W) / np.linalg.norm(E)), target.v + e * (v / np.linalg.norm(e))
    )


def observed(model, oracle, allows=None, seed=0):
    (claim,) = run(verify.check(model, oracle.spec, seed, allows), Stack(oracle)).claims
    return claim


def claims(target, flip=None):
    scores = us.Claim(SCORE_ERROR, ACCURACY * float(np.linalg.norm(target.W)))
    flips = None if flip is None else us.Claim(FLIPS, flip)
    return Allowance(values=us.Claim(VALUE_ERROR, ACCURACY), scores=scores, flips=flips)


@pytest.mark.parametrize("seed", range(5))
def test_a_model_as_good_as_claimed_agrees_everywhere(seed: int) -> None:
    target = head(seed=seed)
    model = perturbed(target, W=ACCURACY, v=ACCURACY, seed=seed)
    claim = observed(model, us.oracle(target, kind="membership"), claims(target), seed)
    assert claim.observed == 0
    assert "epsilon = 0.047, delta = 0.01" in claim.statement
    assert "(96 of them" in claim.statement


@pytest.mark.parametrize("error", [{"W": 300 * ACCURACY}, {"v": 100 * ACCURACY}], ids=str)
def test_a_model_worse_than_claimed_is_found_out(error: dict) -> None:
    target = head()
    claim = observed(perturbed(target, **error), us.oracle(target, kind="membership"), claims(target))
    assert not claim.holds
    assert claim.observed > 0.1


def test_flips_are_allowed_for_as_declared() -> None:
    target, rng = head(), np.random.default_rng(3)
    noisy = us.oracle(lambda x: (target(x) > 0) ^ (rng.random(len(x)) < 0.1), 8, kind="membership")
    assert observed(target, noisy, claims(target, 0.1)).holds
    assert not observed(target, noisy, claims(target)).holds
    assert not observed(perturbed(target, W=1e-2), noisy, claims(target, 0.1)).holds


def test_sequences_stay_inside_the_domain_and_the_count_is_kept() -> None:
    target = head()
    oracle = us.oracle(target, kind="membership", max_norm=0.3, max_length=2)
    stack = Stack(oracle)
    run(verify.check(target, oracle.spec, 0, claims(target)), stack)
    assert stack.meter.billed == verify.queries(oracle.spec)


def test_a_constant_term_shows() -> None:
    target = head()
    shifted = us.models.SingleHead(target.W, target.v, constant=1e-3)
    assert not observed(target, us.oracle(shifted, kind="membership"), claims(target)).holds
