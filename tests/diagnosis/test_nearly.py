"""A learner whose sketch was near or unfinished is named with its command before "outside" is said."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from unsoftmax.diagnosis import scalar
from unsoftmax.diagnosis.single import Trial
from unsoftmax.diagnosis.sketch import Sketch, TooDearError


def returning(value):
    def program(*_, **__):
        yield from ()
        return value

    return program


def test_attention_before_a_network_that_could_not_be_tried_is_named(monkeypatch):
    unpaid = Sketch(None, None, 0, TooDearError("more queries would be needed"))
    monkeypatch.setattr(scalar, "sketch", returning(unpaid))
    monkeypatch.setattr(scalar, "other_kernel", returning(Trial("", None, (), 0)))
    found = us.diagnose(us.oracle(us.models.Transformer.random(6, 9, seed=1)))
    assert found.code == "network"
    assert "--learner AttentionBehind" in str(found)


def test_a_head_that_a_few_dimensions_came_near_is_tried_where_answers_mix_as_softmax(monkeypatch):
    head = us.models.SingleHead.random(6, norm=2.0, seed=1)
    near = Trial("", None, (), 0, "fresh answers are off", near=us.learners.SingleHead())
    monkeypatch.setattr(scalar, "single_head", returning(near))
    monkeypatch.setattr(scalar, "several_heads", returning(Trial("", None, (), 0, "no jump")))
    monkeypatch.setattr(scalar, "other_kernel", returning(Trial("", None, (), 0)))
    recovery = us.recover(us.oracle(head))
    assert np.allclose(recovery.model.W, head.W, rtol=0, atol=1e-12)
