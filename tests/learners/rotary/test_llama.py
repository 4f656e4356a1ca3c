"""Layers of language models from vector answers: rotary positions, shared keys and values, RMSNorm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from tests.weights import smollm_layer
from unsoftmax.learners.core.base import RELATIVE_ERROR
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.learners.rotary.values import Found, Values, telling

Layer, Rope = us.models.AttentionLayer, us.models.Rope


def layer(d=64, H=8, G=2, dh=8, seed=0, base=1e4, share=1.0, **rest):
    rest = {"norm": "rms", "residual": True, "bias": False} | rest
    rope = Rope.ladder(dh, base, share)
    return Layer.random(d, H, dh, kv_groups=G, positions=rope, scale=2.0, seed=seed, **rest)


def recovered(target, preset="lean", seed=7, **rest):
    return us.recover(us.oracle(target, **rest), us.learners.AttentionLayer(preset), seed=seed)


def worst(target, model, lengths=(1, 2, 5, 16, 64)):
    """Largest error on fresh sequences, relative to what attention writes."""
    rng, gap = np.random.default_rng(5), 0.0
    for n in lengths:
        X = rng.standard_normal((8, n, target.dim))
        written = target(X) - (X[:, -1] if target.residual else 0.0)
        gap = max(gap, np.abs(target(X) - model(X)).max() / np.abs(written).max())
    return gap


def ratio(recovery, d, H, G, dh):
    """Numbers received over unknowns, verification aside."""
    unknowns = us.theory.rotary_layer_unknowns(d, H, G, dh)
    return (recovery.usage.billed - recovery.usage.phases["verify"]) * d / unknowns


@pytest.mark.parametrize("preset", ["lean", "balanced", "robust"])
def test_the_usual_block(preset):
    target = layer(seed=3)
    recovery = recovered(target, preset)
    model = recovery.model
    assert (model.heads, model.kv_groups, model.norm, model.residual) == (8, 2, "rms", True)
    assert model.positions.base == pytest.approx(1e4, rel=1e-9)
    assert model.eps == pytest.approx(target.eps, rel=1e-8)
    error = us.models.distance(model, target)
    assert error <= 1e-7
    assert error <= next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert ratio(recovery, 64, 8, 2, 8) <= {"lean": 2.0, "balanced": 2.5, "robust": 5.0}[preset]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(layer(bias=True), id="biases"),
        pytest.param(layer(base=5e5), id="base 5e5"),
        pytest.param(layer(share=0.5), id="half of the rows turn"),
        pytest.param(layer(norm=None), id="no norm"),
        pytest.param(layer(norm=None, residual=False, bias=True), id="no norm, no residual"),
        pytest.param(layer(G=1), id="one group"),
        pytest.param(layer(G=4), id="four groups"),
        pytest.param(layer(d=32, H=4, window=9), id="window"),
        pytest.param(layer(d=32, H=4, outputs=40, residual=False), id="more outputs than inputs"),
    ],
)
def test_relatives(target):
    recovery = recovered(target, "balanced")
    # One draw: its last digits are the processor's. How often 1e-8 is reached is measured by the benchmark.
    assert worst(target, recovery.model) <= 1e-6
    bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
    assert us.models.distance(recovery.model, target) <= bound
    assert recovery.model.kv_groups == target.kv_groups
    assert recovery.model.window == target.window


@pytest.mark.parametrize("preset", PLANS)
@pytest.mark.parametrize(("d", "H", "G", "dh"), [(32, 4, 2, 8), (24, 6, 3, 4)])
def test_main_queries_are_the_closed_form(preset, d, H, G, dh):
    phases = recovered(layer(d, H, G, dh, seed=1), preset).usage.phases
    assert phases["values"] == d + 1
    # Query tokens that had to be shortened are asked again, as a repair.
    assert phases["main"] + phases.get("repair", 0) >= PLANS[preset].main_queries(d, H, G, dh)
    if "repair" not in phases:
        assert phases["main"] == PLANS[preset].main_queries(d, H, G, dh)


@pytest.mark.parametrize(
    ("H", "G", "dh", "n"), [(8, 2, 8, 4), (4, 2, 8, 6), (8, 2, 16, 6), (4, 4, 8, 10), (9, 3, 64, 27)]
)
def test_heads_that_share_keys_are_read_before_few_query_tokens(H, G, dh, n):
    assert us.theory.rotary_query_tokens(H, G, dh) == n


def test_values_that_are_shared_alone_are_read_before_more_query_tokens():
    """Keys of its own for every head: those before a few query tokens do not show them."""
    shared = layer(d=32, H=4, G=1, dh=4, seed=4)
    own = layer(d=32, H=4, G=4, dh=4, seed=5)
    target = replace(shared, K=own.K)
    model = recovered(target, "balanced").model
    assert us.models.distance(model, target) <= 1e-7


def test_a_poor_jacobian_alone_is_no_reason_to_ask_more():
    """Its first Jacobian shows one head 3e4 times worse than another, and its table of sums fits all the same."""
    recovery = recovered(layer(seed=3009), "balanced", 4009)
    assert ratio(recovery, 64, 8, 2, 8) <= 2.5


def test_values_that_tokens_hardly_show_are_shown_by_one_more():
    """Of two groups, one makes next to nothing of one mixture of the tokens asked."""
    rng = np.random.default_rng(3)
    V = np.stack([np.linalg.qr(rng.standard_normal((32, 4)))[0].T for _ in range(2)])
    X = np.linalg.qr(rng.standard_normal((32, 4)))[0].T
    weak = np.linalg.svd(V[0] @ X.T)[0][:, -1] @ V[0]
    X = X - 0.999 * np.outer(X @ weak, weak)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    found = Found(X, np.zeros((2, 32, 4)), 0.0, 4, np.arange(2))
    values = Values(np.zeros((2, 32, 4)), V, np.arange(2), 1.0)
    (token,) = telling(found, values)

    def least(tokens):
        return min(np.linalg.svd(v @ tokens.T, compute_uv=False)[-1] for v in V)

    assert least(np.vstack([X, token])) > 10 * least(X)
    assert telling(replace(found, tokens=np.vstack([X, token, V.sum(axis=0)])), values) == []


@pytest.mark.parametrize("seed", [62, 38])
def test_tokens_never_write_what_the_query_token_writes(seed):
    """Tokens had been made without regard to the last one's values: at one of 65 query tokens nothing had been left
    of a difference, and 7e-7 in the layer. The second has tables that show badly what badly conditioned heads write."""
    target = layer(seed=seed)
    recovery = recovered(target, "lean", seed + 1000)
    assert worst(target, recovery.model) <= 1e-8
    assert ratio(recovery, 64, 8, 2, 8) <= 2.0


@pytest.mark.parametrize("rest", [{}, pytest.param({"qk_norm": True}, marks=pytest.mark.long)], ids=str)
def test_heads_that_are_badly_conditioned_together_are_read_by_one_token_more(rest):
    """The condition of what all heads write together is 1e5, as lean takes it, and errors rise by it."""
    target = layer(seed=4, **rest)
    U, sizes, Vt = np.linalg.svd(np.hstack(list(target.O)))
    sizes[-1] = sizes[0] / 1e5
    target = replace(target, O=np.stack(np.split(U * sizes @ Vt, target.heads, axis=1)))
    recovery = recovered(target, "lean", 1004)
    assert worst(target, recovery.model) <= 1e-7
    assert ratio(recovery, 64, 8, 2, 8) <= (2.5 if rest else 2.0)


def test_long_sequences_follow_from_short_ones():
    target = layer(d=32, H=4, base=1e6)
    seen = []

    def watched(tokens):
        seen.append(tokens.shape[1])
        return target(tokens)

    oracle = us.oracle(watched, 32, outputs=32, max_length=16)
    model = us.recover(oracle, us.learners.AttentionLayer(norm="rms")).model
    assert max(seen) <= 16
    X = np.random.default_rng(0).standard_normal((2, 4096, 32))
    written = target(X) - X[:, -1]
    assert np.abs(model(X) - target(X)).max() <= 1e-6 * np.abs(written).max()


def test_frequencies_of_no_ladder_are_found():
    theta = np.array([1.0, 0.1234, 0.0041, 0.00031])
    target = Layer.random(
        32, 4, 8, kv_groups=2, positions=Rope(theta), norm="rms", residual=True, scale=2.0, bias=False, seed=2
    )
    model = recovered(target, "balanced").model
    assert np.abs(model.positions.turning - theta).max() < 1e-9
    assert model.positions.base is None


def test_rounded_answers_are_drawn_again_where_heads_show_badly():
    """A rate: a run in ten to twenty ends with weights that rounding leaves open, and says so."""
    refused = 0
    for seed in range(8):
        target = layer(d=32, H=4, seed=seed).astype("float32")
        try:
            recovery = us.recover(us.oracle(target), us.learners.AttentionLayer(), seed=seed)
        except us.errors.NotIdentifiable:
            refused += 1
            continue
        assert worst(target, recovery.model) <= 0.05
        bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
        assert us.models.distance(recovery.model, target) <= bound
    assert refused <= 2


@pytest.mark.parametrize("learner", [us.learners.AttentionLayer(), None], ids=["named", "diagnosed"])
@pytest.mark.parametrize("seed", range(3))
def test_heads_that_rounding_hides_are_not_called_another_class(seed, learner):
    """Values of a condition of 1e4 in float32 had been "heads that attend to one token alone", or no rotation."""
    target = layer(d=36, H=9, G=3, dh=4, seed=seed)
    weak = 0.01 ** np.linspace(0, 1, 4)
    target = replace(target, V=target.V * weak[:, None], O=target.O * weak)
    with pytest.raises(us.errors.NotIdentifiable, match="do not show what each head writes"):
        us.recover(us.oracle(target.astype("float32")), learner, seed=seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rest", [{}, {"bias": True}, {"base": 1e6}, {"share": 0.5}, {"norm": None}], ids=str)
def test_twenty_of_twenty(seed, rest):
    target = layer(seed=seed, **rest)
    for preset, error in (("lean", 1e-7), ("balanced", 1e-8)):
        recovery = recovered(target, preset, seed + 1000)
        assert worst(target, recovery.model) <= error
        bound = next(claim.bound for claim in recovery.certificate.claims if claim.name == RELATIVE_ERROR)
        assert us.models.distance(recovery.model, target) <= bound


@pytest.mark.long
def test_one_trained_layer():
    target = smollm_layer(14)
    recovery = recovered(target, "balanced")
    assert (recovery.model.heads, recovery.model.kv_groups, recovery.model.head_dim) == (9, 3, 64)
    assert recovery.model.positions.base == pytest.approx(1e5, rel=1e-9)
    assert worst(target, recovery.model) <= 1e-6
    assert ratio(recovery, 576, 9, 3, 64) <= 2.1
