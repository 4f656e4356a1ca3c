"""A change of the target that hides in what conditioning allows is found by learning the recovered model itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.base import Forecast
from unsoftmax.probes.base import Probes
from unsoftmax.results.recovery import Certificate, Claim
from unsoftmax.run.twin import TWIN, Twin, against_twin, doubtful

Layer = us.models.AttentionLayer


@pytest.fixture(scope="module")
def layer() -> Layer:
    """Rotary heads whose values fade over four digits: their weights are stated far coarser than they are found."""
    positions = us.models.Rope.ladder(16, 1e4)
    drawn = Layer.random(48, 3, 16, residual=True, bias=False, positions=positions, seed=4)
    return replace(drawn, K=3 * drawn.K, V=drawn.V * np.geomspace(1, 1e-4, 16)[None, :, None])


def dropping(layer: Layer, smallest: float):
    def answers(X):
        scores = layer.scores(X)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        weights[weights < smallest] = 0
        weights /= weights.sum(axis=-1, keepdims=True)
        return layer.constant + np.einsum("hbn,bnd,hod->bo", weights, X, layer.P) + X[:, -1]

    return us.oracle(answers, dim=layer.dim, outputs=layer.dim)


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_is_not_refused_for_what_rounding_leaves(layer, seed):
    recovery = us.recover(us.oracle(layer), seed=seed)
    assert us.models.distance(recovery.model, layer) < recovery.certificate.stated_error < 1e-3


@pytest.mark.parametrize("smallest", [1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("learner", [None, us.learners.AttentionLayer()])
def test_weights_dropped_below_what_conditioning_allows_are_seen(layer, smallest, learner):
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        us.recover(dropping(layer, smallest), learner)


def test_a_twin_is_learned_from_no_query(layer):
    asked = []

    def counted(X):
        asked.append(len(X))
        return layer(X)

    oracle = us.oracle(counted, dim=48, outputs=48)
    recovery = us.recover(oracle, us.learners.AttentionLayer())
    before = sum(asked)
    gap = Claim("random sequences", 0.05, 1e-3, statement="gap")
    lowered = against_twin(Certificate((gap,)), recovery.model, oracle.spec, us.learners.AttentionLayer(), 0)
    assert sum(asked) == before
    assert not lowered.holds
    assert "an exact layer of these weights" in lowered.claims[0].statement


def test_a_twin_answers_copies_as_any_target_does(layer):
    """Positions count tokens: copies are written out for them, and no twin of such a layer had been learned."""
    oracle = us.oracle(layer)
    tokens = np.random.default_rng(0).standard_normal((2, 3, 48))
    probes = Probes(tokens, np.array([[1, 2, 1], [3, 1, 1]]))
    assert np.array_equal(Twin(layer, oracle.spec, 0)(probes), oracle(probes))
    other = Twin(layer, oracle.spec, 3)
    assert np.array_equal(other(probes), other(probes))
    assert 0 < np.abs(other(probes) / oracle(probes) - 1).max() < 1e-15


class Unable:
    """A learner that learns nothing."""

    accepts = ("vectors",)

    def forecast(self, spec):
        return Forecast({"values": 1})

    def program(self, spec, seed):
        raise us.errors.ModelMismatch("nothing")
        yield


def test_a_twin_that_is_not_learned_changes_nothing(layer):
    certificate = Certificate((Claim("random sequences", 0.05, 1e-3),))
    assert against_twin(certificate, layer, us.oracle(layer).spec, Unable(), 0) == certificate


def test_only_gaps_that_exact_answers_should_not_show_are_doubted(layer):
    large, small = (Certificate((Claim("random sequences", 0.05, gap),)) for gap in (1e-3, TWIN.doubtful / 2))
    exact = us.oracle(layer).spec
    assert doubtful(large, layer, exact)
    assert not doubtful(small, layer, exact)
    assert not doubtful(large, layer, replace(exact, dtype="float32"))
    assert not doubtful(large, layer, replace(exact, kind="approximate", tolerance=1e-3))
    assert not doubtful(large, us.models.SingleHead.random(4, seed=0), exact)
