"""Every learner, several number formats, declared or not: what is stated holds, or the run ends in a typed refusal.

The whole bar, every format and more seeds, is `python -m benchmarks.number_formats`.
"""

from __future__ import annotations

import pytest

import unsoftmax as us
from benchmarks.number_formats import FORMATS, SUBJECTS, WRONG, outcome

CHOSEN = ("float64", "computed in float32", "answers in float16", "9 decimals", "5 digits", "12 digits")
SLOW = ("MultiHead, affine",)
"""Heads with offsets whose answers drown in noise are fitted from many starts before they are refused."""

FAST = [subject for subject in SUBJECTS if subject.name not in SLOW]


def check(subject, names, seeds):
    for form in FORMATS:
        for declared in (False, True) if subject.declares & set(form.declared or ()) else (False,):
            for seed in seeds:
                if names is None or form.name in names:
                    word, ratio = outcome(subject, form, declared, seed)
                    where = f"{subject.name}, {form.name}, declared={declared}, seed {seed}: {word}, {ratio:.2g}"
                    assert word not in WRONG, where
                    assert not word.startswith("crash"), where


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("subject", FAST, ids=lambda subject: subject.name)
def test_what_is_stated_holds_in_every_number_format(subject):
    check(subject, CHOSEN, range(7, 8))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.name in SLOW], ids=lambda subject: subject.name)
@pytest.mark.long
def test_what_is_stated_holds_in_every_number_format_where_refusals_take_long(subject):
    check(subject, CHOSEN, range(7, 8))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("subject", FAST, ids=lambda subject: subject.name)
@pytest.mark.long
def test_what_is_stated_holds_in_all_number_formats(subject):
    check(subject, None, range(2))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_network_behind_attention_states_what_six_digits_hide():
    check(next(s for s in SUBJECTS if s.name == "Transformer, limit"), ("6 digits",), range(12))


def test_every_learner_is_tried():
    learned = {type(subject.learner).__name__ for subject in SUBJECTS}
    named = {name for name in us.learners.__all__ if hasattr(getattr(us.learners, name), "accepts")}
    assert named <= learned
