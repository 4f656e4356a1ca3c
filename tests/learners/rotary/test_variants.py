"""Relatives of the Llama layer: ALiBi, no positions, caps, sinks, QK-norm, heads that fill the space; and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from tests.learners.rotary.test_llama import Rope, layer, recovered, worst
from unsoftmax.learners.core.base import RELATIVE_ERROR

Alibi = us.models.Alibi


def small(positions=None, **rest):
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "seed": 1}
    return us.models.AttentionLayer.random(32, 4, 8, positions=positions, scale=2.0, **(usual | rest))


SLOPES = Alibi(2.0 ** -np.arange(1.0, 5.0))
ROPE = Rope.ladder(8)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(small(SLOPES), id="ALiBi"),
        pytest.param(small(SLOPES, bias=True, norm=None), id="ALiBi with biases, no norm"),
        pytest.param(small(), id="no positions"),
        pytest.param(small(ROPE, softcap=30.0), id="soft cap 30"),
        pytest.param(small(ROPE, softcap=50.0), id="soft cap 50"),
        pytest.param(small(ROPE, softcap=30.0, sinks=True), id="soft cap 30 and sinks"),
        pytest.param(small(ROPE, sinks=True), id="sinks"),
        pytest.param(small(ROPE, sinks=True, window=20, norm=None, residual=False), id="sinks and window, no norm"),
        pytest.param(small(ROPE, sinks=True, norm=None), id="sinks beside a residual, no norm"),
        pytest.param(small(ROPE, qk_norm=True), id="QK-norm"),
    ],
)
def test_relatives_are_found(target):
    recovery = recovered(target, "balanced")
    model = recovery.model
    assert worst(target, model) <= 1e-7
    assert type(model.positions) is type(target.positions)
    assert (model.window, model.norm, model.residual) == (target.window, target.norm, target.residual)
    assert (model.softcap is None, model.sinks is None) == (target.softcap is None, target.sinks is None)
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(model, target) <= bound


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_tokens_stay_within_the_norm_limit(share, residual):
    """Without a norm tokens were drawn as long as sqrt(d), and sums of two of them longer, whatever the limit."""
    target = us.models.AttentionLayer.random(24, 2, 8, positions=Rope.ladder(8, 1e4), residual=residual, seed=0)
    found = us.recover(us.oracle(target, max_norm=share * 24**0.5), us.learners.AttentionLayer())
    assert us.models.distance(found.model, target) < 1e-8


@pytest.mark.parametrize("width", [2, 4])
def test_norms_of_narrow_heads(width):
    """A token shows one equation less than the head has dimensions: narrow heads take more tokens."""
    target = layer(d=24, H=4, G=2, dh=width, seed=1, qk_norm=True)
    assert worst(target, recovered(target).model) <= 1e-7


@pytest.mark.parametrize(("dim", "heads", "width"), [(16, 1, 5), (15, 3, 3)])
def test_heads_of_odd_width_behind_a_norm(dim, heads, width):
    target = us.models.AttentionLayer.random(dim, heads, width, norm="rms", residual=True, seed=1)
    recovery = us.recover(us.oracle(target, dim, outputs=dim), us.learners.AttentionLayer())
    stated = next(claim.bound for claim in recovery.certificate if claim.name == "relative parameter error")
    assert us.models.distance(recovery.model, target) <= stated < 1e-6


@pytest.mark.parametrize("rest", [{}, {"norm": None}, {"norm": None, "residual": False, "bias": True}], ids=str)
def test_heads_that_fill_the_space(rest):
    target = layer(d=32, H=4, G=4, dh=8, seed=5, **rest)
    recovery = recovered(target, "balanced")
    assert recovery.model.residual == target.residual
    # Heads are told apart by a small difference of scores here: single draws lose digits, and say so.
    assert worst(target, recovery.model) <= 1e-3
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= bound


@pytest.mark.parametrize(
    "rest",
    [
        {"window": 5},
        {"window": 7, "sinks": True},
        {"window": 6, "softcap": 20.0},
        {"window": 5, "qk_norm": True},
        {"window": 40, "bias": True},
        {"window": 500, "bias": True},
        {"window": 40, "positions": SLOPES},
    ],
    ids=str,
)
def test_windows_shorter_and_longer_than_a_block(rest):
    target = small(**({"positions": ROPE} | rest))
    model = recovered(target).model
    assert model.window == target.window
    assert worst(target, model) <= 1e-6


@pytest.mark.parametrize("rest", [{"H": 6, "G": 1}, {"H": 8, "G": 2, "qk_norm": True}], ids=str)
def test_more_heads_share_keys_than_keys_have_dimensions(rest):
    target = layer(d=32, dh=4, seed=1, **rest)
    assert worst(target, recovered(target).model) <= 1e-6


def test_sinks_of_heads_of_two_dimensions():
    target = layer(d=24, H=4, dh=2, seed=1, sinks=True)
    assert worst(target, recovered(target).model) <= 1e-6


@pytest.mark.parametrize("seed", [1, 13])
def test_values_that_show_badly_are_no_other_law(seed):
    """What heads write is known to 1e-11 in these draws, and small weights of others make 1e-8 of it in keys."""
    rng = np.random.default_rng(seed)
    Q = 1.5 * rng.standard_normal((4, 4, 24))
    K, V = (np.repeat(rng.standard_normal((2, 4, 24)), 2, axis=0) for _ in range(2))
    O = rng.standard_normal((4, 24, 4))
    zero, place = np.zeros((4, 24)), Rope(np.array([1.0, 0.01]))
    parts = K / np.sqrt(24), Q / np.sqrt(24), zero, O / np.sqrt(24), V / np.sqrt(24), zero[0]
    target = us.models.AttentionLayer(*parts, norm="rms", eps=1e-5, residual=True, positions=place)
    assert worst(target, recovered(target, "balanced", seed + 3).model) <= 1e-5


REFUSED = {
    "a window of four tokens": lambda: small(ROPE, window=4),
    "sinks beside a query bias": lambda: small(ROPE, sinks=True, bias=True),
    "a key bias behind a soft cap": lambda: small(ROPE, softcap=5.0, bias=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_learned_is_refused(name):
    with pytest.raises((us.errors.ModelMismatch, us.errors.NotIdentifiable)):
        recovered(REFUSED[name]())


@pytest.mark.parametrize(("d", "H", "dh"), [(34, 4, 8), (32, 7, 4)], ids=["two dimensions left", "fewer than heads"])
def test_heads_that_leave_few_dimensions(d, H, dh):
    target = layer(d=d, H=H, G=H, dh=dh)
    assert worst(target, recovered(target).model) < 1e-8


def filling(seed, scale=2.0):
    rest = {"norm": "rms", "residual": True, "positions": Rope.ladder(4), "bias": False}
    return us.models.AttentionLayer.random(16, 4, 4, seed=seed, scale=scale, **rest)


def nearly_alike(seed):
    """Two heads read nearly the same."""
    target = filling(seed)
    V = target.V.copy()
    V[1] = V[0] + 1e-3 * V[1]
    return replace(target, V=V)


def strong(seed):
    return filling(seed, scale=6.0)


@pytest.mark.parametrize(("made", "seed"), [(nearly_alike, 8), (nearly_alike, 12), (nearly_alike, 39), (strong, 18)])
def test_no_draw_refuses_heads_that_fill_the_space(made, seed):
    """A fit that stalls is no other law of scores, and heads that read nearly the same do not share values."""
    target = made(seed)
    recovery = us.recover(us.oracle(target), us.learners.AttentionLayer())
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= bound < 1e-2


@pytest.mark.parametrize(
    ("rest", "words"),
    [({"softcap": 20.0}, "soft cap"), ({"softcap": 300.0}, "soft cap"), ({"qk_norm": True}, "norms of keys")],
    ids=["cap", "far cap", "QK-norm"],
)
def test_other_laws_of_heads_that_fill_the_space_are_refused_by_name(rest, words):
    with pytest.raises(us.errors.UnsoftmaxError, match=words):
        us.recover(us.oracle(small(ROPE, kv_groups=4, **rest)), us.learners.AttentionLayer())


@pytest.mark.parametrize("seed", range(3))
def test_scores_far_below_what_steps_of_distance_take_away_pass_for_no_norm(seed):
    made = us.models.AttentionLayer.random(24, 3, seed=seed, head_dim=8, positions=Alibi(SLOPES.slopes[:3]))
    weak = replace(made, Q=0.03 * made.Q, c=0.03 * made.c)
    recovery = us.recover(us.oracle(weak))
    assert us.models.distance(recovery.model, weak) <= recovery.certificate.stated_error < 1e-6


def test_sinks_beside_keys_of_an_odd_dimension():
    """The last coordinate of a key has no partner to turn with."""
    turning = Rope(1e4 ** (-np.arange(3) / 3))
    usual = {"norm": "rms", "residual": True, "bias": False, "kv_groups": 2, "seed": 1, "scale": 2.0}
    target = us.models.AttentionLayer.random(32, 4, 7, positions=turning, sinks=True, **usual)
    recovery = us.recover(us.oracle(target), us.learners.AttentionLayer())
    assert us.models.distance(recovery.model, target) <= recovery.certificate.stated_error < 1e-4
