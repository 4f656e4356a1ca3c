"""A learner whose sketch was near or unfinished is named with its command before "outside" is said."""

from __future__ import annotations

import numpy as np

import unsoftmax as us
from unsoftmax.diagnosis import scalar
from unsoftmax.diagnosis.answers import answers
from unsoftmax.diagnosis.mixing import MIXING_QUERIES, heard_mixing
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


def two_heads(w, rank, dim=48, seed=3):
    """Two heads of low rank in float32, and what they round."""
    rng = np.random.default_rng([seed, 3])
    K, Q = rng.standard_normal((2, 2, rank, dim))
    W = K.transpose(0, 2, 1) @ Q * (w / np.sqrt(dim * rank))
    return us.models.MultiHead(W, rng.standard_normal((2, dim)) * [[1], [0.3]])


def answered(program, target):
    """What a program returns, and how many sequences it asks."""
    asked, y = 0, None
    while True:
        try:
            request = program.send(y)
        except StopIteration as done:
            return done.value, asked
        asked, y = asked + len(request), target(request.tokens, request.counts).astype(np.float64)


def test_faint_scores_are_heard_with_longer_tokens():
    """One of four seeds had called a sum of trained heads in float32 outside: beside rounding no law was heard."""
    target = two_heads(1e-3, 2).astype("float32")
    spec = us.oracle(target, dtype="float32").spec
    known, _ = answered(answers(spec, 1.0, np.random.default_rng(0)), target)
    for spare, heard in ((0, None), (2 * MIXING_QUERIES, True)):
        program = heard_mixing(spec, 1.0, known, np.random.default_rng(1), MIXING_QUERIES, spare)
        law, asked = answered(program, target)
        assert (law and law.value) == heard
        assert asked <= MIXING_QUERIES + spare


def test_heads_whose_laws_noise_hides_are_tried():
    """Their jumps were counted, and a sketch came within 5e-4 of the answers: they had been called outside."""
    target = two_heads(0.003, 2)
    recovery = us.recover(us.oracle(target.astype("float32"), dtype="float32"), seed=3)
    assert us.models.distance(recovery.model, target) <= recovery.certificate.stated_error < 0.01
