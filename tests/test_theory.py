"""Closed forms against hand counts."""

import inspect
import math

import pytest

import unsoftmax as us
from unsoftmax import theory


def test_single_head() -> None:
    assert theory.single_head_queries(64) == 4160 == theory.single_head_unknowns(64)


def test_low_rank_at_full_rank_is_the_single_head() -> None:
    assert theory.low_rank_unknowns(10, 10) == theory.single_head_unknowns(10)
    assert theory.low_rank_unknowns(4096, 128) == 128 * (8192 - 128) + 4096


def test_low_rank_counts() -> None:
    assert theory.low_rank_queries(256, 8) == theory.low_rank_unknowns(256, 8) == 256 + 8 * 504
    assert theory.nuclear_norm_measurements(32, 2) == 4 * 2 * 62
    assert theory.nuclear_norm_measurements(32, 2, constant=2.5) == 310
    assert theory.nuclear_norm_measurements(6, 3) == 36
    assert theory.nuclear_norm_queries(32, 2) == 32 + 496


def test_others() -> None:
    assert theory.relu_network_unknowns(3, 5) == 15
    assert theory.relu_network_unknowns(3, 5, bias=True) == 21
    assert theory.transformer_unknowns(3, 5) == 24
    assert theory.transformer_queries(3, 100) == 124
    assert theory.multi_head_unknowns(4, 3) == 60
    assert theory.orthogonal_heads_queries([2, 3]) == 6 + 12


FORMS = {n: f for n, f in vars(theory).items() if inspect.isfunction(f) and f.__module__.startswith(theory.__name__)}
GOOD = {
    "kernel": "relu",
    "T": 3,
    "d": 4,
    "r": 2,
    "H": 2,
    "outputs": 4,
    "L": 2,
    "m": 3,
    "V": 9,
    "s": 2,
    "dims": [2, 3],
    "spare": 1,
    "groups": 1,
    "rows": 2,
}
GOOD |= {"full": 1, "N": 5, "k": 3, "G": 1, "slots": 2, "last_slots": 2, "tokens": 3, "extra": 1, "repeats": 1}
GOOD |= {"queries": 10, "floor": 5.0, "price": 0.1, "principal": 1.0}
GOOD |= {"blocks": 1, "network_queries": 5, "delta": 0.1, "flip": 0.1, "tolerance": 1e-6, "eps": 1e-16, "constant": 4.0}
GOOD |= {
    "W_bound": 2.0,
    "margin": 0.1,
    "accuracy": 1e-3,
    "max_norm": 1.0,
    "value_norm": 1.0,
    "eps_W": 0.1,
    "eps_v": 0.01,
}
WHOLE = {
    "k",
    "G",
    "slots",
    "last_slots",
    "tokens",
    "extra",
    "repeats",
    "d",
    "r",
    "H",
    "L",
    "N",
    "m",
    "V",
    "s",
    "spare",
    "T",
    "groups",
    "rows",
    "full",
    "blocks",
    "network_queries",
    "outputs",
}


@pytest.mark.parametrize("name", FORMS)
def test_arguments_that_are_not_what_their_names_say_are_refused(name) -> None:
    form = FORMS[name]
    needed = {n: GOOD[n] for n, p in inspect.signature(form).parameters.items() if p.default is inspect.Parameter.empty}
    assert form(**needed) is not None
    for argument in needed:
        junk = (-1, 1.5, True, "x", None) if argument in WHOLE else (-1.0, math.nan, "x", None)
        for value in ([0], [1.5]) if argument == "dims" else junk:
            with pytest.raises(us.errors.InvalidArgument, match=argument):
                form(**{**needed, argument: value})


def test_a_rank_is_at_most_the_dimension() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="between 0 and d"):
        theory.low_rank_unknowns(4, 5)
