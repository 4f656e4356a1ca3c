"""Stacks that are none: attention that treats small weights in its own way, in every kind of stack."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.verify.test_small_weights import dropping
from unsoftmax.learners.core.base import Allowance
from unsoftmax.learners.core.settling import begun
from unsoftmax.models.base import attention_weights
from unsoftmax.results.recovery import Claim
from unsoftmax.verify import stacks

KINDS = {
    "layer norm": {},
    "rms norm, causal": {"norm": "rms", "causal": True},
    "no norm": {"norm": None, "head_dim": 5},
    "networks": {"network": 12},
    "final norm": {"final_norm": True},
}


def stack(kind, seed=1):
    return us.models.AttentionStack.random(10, 2, 2, **({"head_dim": 3, "seed": seed} | KINDS[kind]))


def recovered(target, cut):
    return us.recover(us.oracle(dropping(target, cut), 10, outputs=10), us.learners.AttentionStack())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1e-5, 3e-7])
def test_weights_that_are_dropped_are_seen(kind, cut) -> None:
    with pytest.raises(us.errors.ModelMismatch):
        recovered(stack(kind), cut)


@pytest.mark.parametrize("kind", ["layer norm", "rms norm, causal", "no norm", "final norm"])
@pytest.mark.parametrize("cut", [1e-8, 1e-9])
def test_weights_far_below_what_users_see_where_all_digits_of_a_stack_are_known(kind, cut) -> None:
    """They had passed, off by 1e-8 beside a stated 2e-13."""
    with pytest.raises(us.errors.ModelMismatch, match="small weights"):
        recovered(stack(kind), cut)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_attention_with_all_its_weights_is_recovered(kind) -> None:
    target = stack(kind)
    recovery = recovered(target, 0.0)
    assert "small weights" in [claim.name for claim in recovery.certificate.claims]
    assert us.models.distance(recovery.model, target) <= recovery.certificate.stated_error


def test_all_heads_side_by_side_attend_as_the_stack_does_where_tokens_are_long() -> None:
    layers = us.models.AttentionStack.random(9, 1, 2, 4, seed=1).layers
    layers += us.models.AttentionStack.random(9, 1, 1, 2, seed=2).layers
    target = us.models.AttentionStack(layers, "layer", 1e-5)
    layer = stacks._as_layer(target)
    X = target.normalised(2.0**60 * np.random.default_rng(0).standard_normal((5, 4, 9)))
    scores = np.einsum("bnd,hbd->bhn", X, layer.key_directions(X[:, -1]))
    np.testing.assert_allclose(attention_weights(scores, None), target.attention(2.0**60 * X), atol=1e-12)


def test_a_kink_is_left_behind_and_a_wrong_head_is_not() -> None:
    """Two contexts that are off are asked again with their last tokens turned; a head that is off is so there too."""
    target = us.models.AttentionStack.random(9, 2, 2, 3, network=12, activation="relu", seed=1)
    model = us.recover(us.oracle(target), us.learners.AttentionStack()).model
    spec = us.oracle(target).spec

    def claims(spoil):
        program = stacks.check(model, spec, 0, Allowance(Claim("relative parameter error", 1e-9)))
        answer, turn = None, 0
        try:
            while True:
                probes = begun(program, answer)
                answer = target(np.asarray(probes.tokens), np.asarray(probes.counts))
                answer, turn = spoil(answer, turn), turn + 1
        except StopIteration as end:
            return end.value

    def once(answer, turn):
        """The first two contexts of the first round."""
        answer[:2] += 1e-4 * (turn == 0)
        return answer

    def always(answer, turn):
        return answer + 1e-4 * (turn % 2 == 0)

    assert claims(once).holds
    assert not claims(always).holds
