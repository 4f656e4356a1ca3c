"""One place decides which learner fits which class and access."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import unsoftmax as us
from unsoftmax.diagnosis.choice import FAMILIES, candidates, in_logs, in_noise, learner_of, through

ROOT = Path(__file__).parents[2] / "src" / "unsoftmax"
ORACLES = {
    "values": us.oracle(lambda X: X, 8),
    "vectors": us.oracle(lambda X: X, 8, outputs=8),
    "labels": us.oracle(lambda X: X, 8, kind="membership"),
    "ids": us.token_oracle(lambda ids: ids, 20),
    "logits": us.logit_oracle(lambda ids: ids, 20),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_learner_of_a_family_learns_from_what_it_shows(family: str) -> None:
    known = FAMILIES[family]
    spec = ORACLES[known.shown].spec
    for learner in (learner_of(family), *(learner_of(family, **settings) for settings in known.found)):
        learner.forecast(spec)
        assert learner in candidates(spec)


def test_only_public_learners_are_chosen() -> None:
    known = {
        type(learner) for family in FAMILIES.values() for learner in (family.learner, family.noisy or family.learner)
    }
    assert known <= {kind for kind in vars(us.learners).values() if isinstance(kind, type)}


def test_another_access_takes_another_learner() -> None:
    assert isinstance(through(us.learners.LowRank(), ORACLES["labels"].spec, labels=1e-6), us.learners.Membership)
    several = through(us.learners.MultiHead(), ORACLES["labels"].spec, labels=1e-6)
    assert several == us.learners.Membership(accuracy=1e-6, heads=None)
    with pytest.raises(us.errors.InvalidArgument, match="labels"):
        through(us.learners.Transformer(), ORACLES["labels"].spec, labels=1e-6)
    assert in_noise(us.learners.SingleHead()) == us.learners.Approximate()
    assert in_noise(us.learners.LowRank()) == us.learners.LowRank()
    assert in_logs(us.learners.Approximate()) == "single head"
    assert in_logs(us.learners.Transformer()) is None


@pytest.mark.parametrize("room", ["diagnosis", "auditing", "run"])
def test_nobody_else_decides(room: str) -> None:
    making = re.compile(r"(?<!us\.)\blearners\.[A-Z]\w+\(")
    found = {path.name for path in (ROOT / room).glob("*.py") if making.search(path.read_text())}
    assert found - {"choice.py"} == set()
