"""Every learner refuses hyper-parameters of the wrong kind with their name, before a query is spent."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.acceptance import check_parameters

JUNK = {
    "whole": [1.5, -1, "x", True, math.nan],
    "real": ["x", math.nan, -1.0, True],
    "switch": ["x", 1.5, None],
    "choice": ["nonsense", 3],
    "array": ["x"],
}
KINDS = {
    "whole": {"rank", "heads", "layers", "measurements", "length"},
    "real": {"W_bound", "margin", "accuracy", "flip_probability", "delta", "eps_v"},
    "switch": {"affine", "polish", "bias", "fixed_flips", "networks"},
    "choice": {"method", "probes", "preset", "norm", "positions", "network", "gauge", "kernel", "final_norm"},
    "array": {"bases", "embeddings"},
}
LEARNERS = [
    getattr(us.learners, name)
    for name in us.learners.__all__
    if hasattr(getattr(us.learners, name), "program") and name != "Learner"
]
CASES = [
    pytest.param(learner, field.name, value, id=f"{learner.__name__}-{field.name}-{value!r}")
    for learner in LEARNERS
    for field in fields(learner)
    for kind, names in KINDS.items()
    if field.name in names
    for value in JUNK[kind]
]


def counting(learner) -> tuple[us.oracles.Oracle, list[int]]:
    """An oracle of the kind the learner takes, and the batches it was asked."""
    asked: list[int] = []

    def fn(tokens):
        asked.append(len(tokens))
        wide = learner is us.learners.AttentionLayer
        return np.zeros((len(tokens), 4)) if wide else np.zeros(len(tokens))

    if learner in (us.learners.OutputLayer, us.learners.TokenLayer):
        return us.logit_oracle(fn, 9 if learner is us.learners.OutputLayer else 40, name="nothing"), asked
    if learner is us.learners.TokenHead:
        return us.token_oracle(fn, 9, name="nothing"), asked
    kind = "membership" if learner is us.learners.Membership else "value"
    outputs = 4 if learner is us.learners.AttentionLayer else None
    return us.oracle(fn, 4, kind=kind, outputs=outputs, name="nothing"), asked


def test_every_field_is_of_a_kind_that_is_tried() -> None:
    tried = set().union(*KINDS.values())
    assert {field.name for learner in LEARNERS for field in fields(learner)} == tried


@pytest.mark.parametrize(("learner", "name", "value"), CASES)
def test_junk_is_refused_by_name_before_a_query(learner, name, value) -> None:
    oracle, asked = counting(learner)
    with pytest.raises(us.errors.InvalidArgument, match=name):
        us.recover(oracle, learner(**{name: value}))
    assert asked == []


@pytest.mark.parametrize("learner", [us.learners.MultiHead, us.learners.Transformer, us.learners.AttentionBehind])
def test_no_heads_is_not_a_number_of_heads(learner) -> None:
    oracle, asked = counting(learner)
    with pytest.raises(us.errors.InvalidArgument, match="heads"):
        us.recover(oracle, learner(heads=0))
    assert asked == []


def test_numpy_numbers_are_numbers() -> None:
    spec = us.oracle(us.models.SingleHead.random(np.int64(4), seed=np.int64(1)), 4).spec
    plain = us.learners.LowRank(rank=2, affine=True).forecast(spec)
    assert us.learners.LowRank(rank=np.int64(2), affine=np.bool_(True)).forecast(spec) == plain
    check_parameters(us.learners.Membership(accuracy=np.float64(1e-6)))


ORACLE = us.oracle(us.models.SingleHead.random(4, seed=0))
LEARNER = us.learners.SingleHead()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: us.recover(ORACLE, LEARNER, budget="5"), "budget queries"),
        (lambda: us.recover(ORACLE, LEARNER, budget=math.nan), "budget queries"),
        (lambda: us.recover(ORACLE, LEARNER, seed=1.5), "seed"),
        (lambda: us.recover(ORACLE, LEARNER, recheck="often"), "recheck"),
        (lambda: us.recover(ORACLE, LEARNER, ledger=5), "ledger"),
        (lambda: us.recover(ORACLE, us.learners.SingleHead), "learner"),
        (lambda: us.audit(ORACLE, truth="model"), "truth"),
        (lambda: us.audit(ORACLE, terms=0.01), "terms"),
        (lambda: us.models.SingleHead.random(0), "dim"),
        (lambda: us.models.SingleHead.random(1.5), "dim"),
        (lambda: us.models.SingleHead.random(4, seed=-1), "seed"),
        (lambda: us.models.LowRankHead.random(4, -1), "rank"),
        (lambda: us.models.MultiHead.random(4, -1), "heads"),
        (lambda: us.models.ReluNetwork.random(4, -1), "width"),
        (lambda: us.models.Transformer.random(4, 2.5), "width"),
        (lambda: us.models.AttentionLayer.random(0), "dim"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_by_name(call, name) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=f"`{name}`"):
        call()


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 1.5}, {"max_length": 0}, {"max_length": True}, {"max_norm": "x"}, {"max_norm": -1.0},
        {"max_batch": 2.5}, {"max_batch": 0}, {"outputs": 1.5}, {"tolerance": "x"}, {"tolerance": -1.0},
        {"tolerance": math.nan}, {"dim": 2.5}, {"dim": 0}, {"kind": "x"}, {"dtype": "x"}, {"link": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_oracle_refuses_junk_by_name(options) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=next(iter(options))):
        us.oracle(lambda X: X.sum((1, 2)), **{"dim": 4, **options})


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"budget": -1}, {"ledger": 3}], ids=str)
def test_recover_refuses_junk(options) -> None:
    oracle, asked = counting(us.learners.SingleHead)
    with pytest.raises(us.errors.InvalidArgument):
        us.recover(oracle, us.learners.SingleHead(), **options)
    assert asked == []
