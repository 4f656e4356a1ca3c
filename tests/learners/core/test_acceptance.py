import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners.core.acceptance import access

ORACLES = {
    "values": us.oracle(lambda X: X[:, 0, 0], 3),
    "noisy": us.oracle(lambda X: X[:, 0, 0], 3, tolerance=1e-3),
    "labels": us.oracle(lambda X: X[:, 0, 0], 3, kind="membership"),
    "vectors": us.oracle(lambda X: X[:, 0], 3, outputs=3),
    "ids": us.token_oracle(lambda ids: ids[:, 0].astype(float), 5),
    "gradient": us.oracle(lambda X: (X[:, 0, 0], np.zeros_like(X)), 3, kind="gradient"),
    "attention": us.oracle(lambda X: (X[:, 0, 0], X[:, :, 0]), 3, kind="attention"),
    "logits": us.logit_oracle(lambda ids: np.zeros((len(ids), 5)), 5),
    None: us.token_oracle(lambda ids: ids[:, 0].astype(float), 5, kind="membership"),
}
LEARNERS = [
    getattr(us.learners, name)() for name in us.learners.__all__ if hasattr(getattr(us.learners, name), "accepts")
]


@pytest.mark.parametrize("shown", ORACLES)
def test_an_oracle_shows_one_thing(shown):
    assert access(ORACLES[shown].spec) == shown


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("shown", ORACLES)
def test_a_learner_names_what_it_needs_where_the_oracle_shows_something_else(learner, shown):
    if shown in learner.accepts:
        return
    with pytest.raises(us.errors.InvalidArgument, match=f"{type(learner).__name__} learns from .* declare the oracle"):
        learner.forecast(ORACLES[shown].spec)
