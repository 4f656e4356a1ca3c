"""Stacks from their answers: heads, layers, order, norm, eps, causal or not; and refusals by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.learners import AttentionStack
from unsoftmax.models.positions import Rope


def stack(dim=8, layers=2, heads=2, head_dim=2, seed=1, **rest):
    return us.models.AttentionStack.random(dim, layers, heads, head_dim, seed=seed, **rest)


def recovered(target, **rest):
    return us.recover(us.oracle(target), AttentionStack(**rest))


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_everything_is_found(norm, causal, layers) -> None:
    target = stack(layers=layers, norm=norm, causal=causal, eps=3e-6)
    model = recovered(target).model
    assert us.models.distance(model, target) < 1e-12
    assert model.norm == norm
    assert model.causal == (causal and layers > 1)
    assert model.eps == pytest.approx(3e-6, rel=1e-9)
    X = np.random.default_rng(0).standard_normal((20, 7, 8))
    np.testing.assert_allclose(model(X), target(X), atol=1e-12)


@pytest.mark.parametrize("share", [1e-2, 1e-4, 0.0])
def test_stated_errors_hold_for_offsets_that_are_small_beside_w(share) -> None:
    """The error of c beside c had been stated as one beside W: a thousand times too small at 1e-4."""
    target = stack(seed=3)
    target = replace(target, layers=tuple(replace(layer, c=share * layer.c) for layer in target.layers))
    recovery = recovered(target)
    stated = next(claim for claim in recovery.certificate.claims if claim.name == "relative parameter error")
    assert us.models.distance(recovery.model, target) <= stated.bound <= 1e-11 / (share or 1.0)


@pytest.mark.parametrize(
    "kind",
    [
        {"activation": "relu"},
        {"activation": "relu", "network": 60, "layers": 3},  # hundreds of kinks, near some of which tokens lie
        {"activation": "gelu", "causal": True},
        {"activation": "silu", "gated": True, "norm": "rms"},
    ],
    ids=str,
)
def test_heads_between_networks(kind) -> None:
    target = stack(**({"network": 12} | kind))
    recovery = recovered(target)
    model = recovery.model
    assert us.models.distance(model, target) < 1e-9
    assert (model.networks, model.causal) == ("unknown", kind.get("causal", False))
    with pytest.raises(us.errors.NotIdentifiable, match="unknown functions"):
        model(np.zeros((1, 2, 8)))
    X = np.random.default_rng(0).standard_normal((3, 4, 8))
    seen, mine = target.attention(X * 2.0**60), model.attention(X * 2.0**60)
    # Heads of a layer come in any order.
    np.testing.assert_allclose(np.sort(seen.sum(axis=1)), np.sort(mine.sum(axis=1)), atol=1e-7)


def test_layers_of_unequal_size_and_ranks_that_fill_the_space() -> None:
    wide, narrow = stack(layers=1, heads=3, head_dim=7), stack(layers=1, heads=1, head_dim=7, seed=2)
    target = us.models.AttentionStack(wide.layers + narrow.layers, "layer", 1e-5)
    model = recovered(target).model
    assert model.heads == (3, 1)
    assert us.models.distance(model, target) < 1e-11


@pytest.mark.parametrize(("layers", "heads", "rank", "rms"), [(2, 2, 2, False), (1, 2, 3, True), (2, 1, 1, False)])
def test_the_bill_is_the_closed_form(layers, heads, rank, rms) -> None:
    target = stack(9, layers, heads, rank, norm="rms" if rms else "layer")
    phases = recovered(target).usage.phases
    assert "repair" not in phases
    asked = sum(count for phase, count in phases.items() if phase != "verify")
    assert asked == us.theory.attention_stack_queries(9, layers, heads, rank, rms)
    unknowns = us.theory.attention_stack_unknowns(16, 4, 2, 4)
    assert us.theory.attention_stack_queries(16, 4, 2, 4) * 16 < 6 * unknowns


@pytest.mark.parametrize("given", [{"layers": 3}, {"heads": 4}, {"norm": "rms"}, {"final_norm": True}])
def test_what_is_given_is_held_against_what_is_found(given) -> None:
    with pytest.raises(us.errors.ModelMismatch, match=r"given"):
        recovered(stack(), **given)


@pytest.mark.parametrize(
    "kind",
    [{"network": 12}, {"network": 12, "activation": "relu", "causal": True}, {"norm": "rms", "network": 9, "heads": 1}],
    ids=str,
)
def test_heads_behind_a_final_norm(kind) -> None:
    target = stack(**({"dim": 9, "final_norm": True} | kind))
    recovery = recovered(target, final_norm=True)
    model = recovery.model
    (claim,) = [c for c in recovery.certificate.claims if c.name == "relative parameter error"]
    assert us.models.distance(model, target) <= min(claim.bound, 1e-8)
    assert model.final_norm
    assert model.heads == target.heads
    assert "frozen contexts" in [c.name for c in recovery.certificate.claims]


@pytest.mark.parametrize("kind", [{"eps": 3e-6}, {"norm": "rms", "causal": True}], ids=str)
def test_a_whole_stack_behind_a_final_norm(kind) -> None:
    """Attention alone: the stack itself is fitted to the directions it answers, and can be called."""
    target = stack(9, head_dim=3, final_norm=True, **kind)
    recovery = recovered(target)
    model = recovery.model
    assert us.models.distance(model, target) <= min(recovery.certificate.stated_error, 1e-11)
    assert (model.networks, model.causal) == (None, target.causal)
    assert model.eps == pytest.approx(target.eps, rel=1e-6)
    X = np.random.default_rng(0).standard_normal((20, 7, 9))
    np.testing.assert_allclose(model(X), target(X), atol=1e-11)
    assert {"frozen contexts", "small weights", "ordinary sequences"} <= {c.name for c in recovery.certificate.claims}


def test_norms_after_the_layers_are_refused_by_name() -> None:
    layer = us.models.AttentionLayer.random(8, 2, norm="post", residual=True, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match="post-norm"):
        recovered(layer)


def test_the_claim_covers_the_error() -> None:
    for seed in range(3):
        target = stack(seed=seed, network=12 * (seed == 2))
        recovery = recovered(target)
        (claim,) = [c for c in recovery.certificate.claims if c.name == "relative parameter error"]
        assert us.models.distance(recovery.model, target) <= claim.bound


def test_spec_that_cannot_be_served_is_refused_before_a_query() -> None:
    f = stack()
    wrong = us.errors.InvalidArgument
    for oracle, error, words in [
        (us.oracle(lambda X: f(X)[:, 0], 8), wrong, "outputs="),
        (us.oracle(lambda X: f(X)[:, :5], 8, outputs=5), wrong, "as wide as tokens"),
        (us.oracle(f, tolerance=1e-6, kind="approximate"), wrong, "exact answers"),
        (us.oracle(f, max_norm=1e6), us.errors.DomainError, "max_norm"),
        (us.oracle(f, max_length=5), us.errors.DomainError, "max_length"),
    ]:
        with pytest.raises(error, match=words) as refusal:
            us.recover(oracle, AttentionStack())
        assert refusal.value.recovery is None or refusal.value.recovery.usage.billed == 0


def test_a_target_that_lies_on_ordinary_sequences_only_is_caught() -> None:
    """Heads, order and all frozen answers are right; what the stack does to short contexts is not."""
    f = stack()

    def other(X):
        y = f(X)
        ordinary = np.abs(X).max(axis=(1, 2)) < 100
        return y + 1e-6 * (ordinary & (np.ptp(X, axis=1).max(axis=1) > 0))[:, None]

    with pytest.raises(us.errors.ModelMismatch, match="ordinary sequences"):
        us.recover(us.oracle(other, 8, outputs=8), AttentionStack())


def test_paths_that_always_meet_on_equal_tokens_part_on_unequal_ones() -> None:
    """At tokens of one length two of the eight paths end on the same token in every scan."""
    target = stack(16, 2, 2, 8, norm=None, seed=9000)
    assert us.models.distance(us.recover(us.oracle(target), AttentionStack(), seed=9000).model, target) < 1e-10


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 6), (3, 1, 8), (2, 2, 6), (1, 3, 4)], ids=str)
def test_stacks_without_norms(shape, causal) -> None:
    layers, heads, rank = shape
    target = stack(10, layers, heads, rank, norm=None, causal=causal)
    recovery = recovered(target, norm=None)
    model = recovery.model
    (claim,) = [c for c in recovery.certificate.claims if c.name == "relative parameter error"]
    assert us.models.distance(model, target) <= min(claim.bound, 1e-10)
    assert (model.norm, model.heads, model.causal) == (None, target.heads, causal and layers > 1)
    X = np.random.default_rng(0).standard_normal((20, 7, 10))
    np.testing.assert_allclose(model(X), target(X), atol=1e-10)


def test_the_bill_of_a_stack_without_norms_is_the_closed_form() -> None:
    """Where no two paths meet on one token, which one of three does."""
    exact = 0
    for seed in range(4):
        phases = recovered(stack(9, 2, 1, 5, norm=None, seed=seed)).usage.phases
        asked = sum(count for phase, count in phases.items() if phase not in ("verify", "repair"))
        exact += asked == us.theory.plain_stack_queries(9, 2, 1, 5) and "repair" not in phases
    assert exact >= 1
    for layers, heads, rank in [(2, 1, 16), (3, 1, 16), (2, 2, 8)]:
        unknowns = us.theory.plain_stack_unknowns(16, layers, heads, rank)
        assert us.theory.plain_stack_queries(16, layers, heads, rank) * 16 < 5 * unknowns


def test_more_paths_than_outputs_are_refused_by_name() -> None:
    with pytest.raises(us.errors.NotIdentifiable, match="paths"):
        recovered(stack(6, 3, 1, 4, norm=None))


def test_networks_without_norms_are_refused() -> None:
    with pytest.raises(us.errors.ModelMismatch, match="not affine"):
        recovered(stack(norm=None, network=8))


@pytest.mark.parametrize("network", [0, 12])
@pytest.mark.parametrize("times", [2, 3])
def test_one_layer_used_again_and_again(times, network) -> None:
    """At infinity it is one layer that writes as often as much; the 1/lambda term tells how often."""
    one = stack(layers=1, network=network, causal=True)
    networks = None if one.networks is None else one.networks * times
    target = us.models.AttentionStack(one.layers * times, "layer", 1e-5, True, networks)
    model = recovered(target).model
    assert model.heads == (2,) * times
    assert us.models.distance(model, target) < (1e-9 if network else 1e-12)


def test_heads_of_two_layers_that_attend_alike_are_not_taken_for_one() -> None:
    """Behind networks nothing but the order shows that their sum is no head."""
    for seed in range(3):
        target = stack(network=12, seed=seed)
        low, high = target.layers
        same = {name: np.stack([getattr(low, name)[0], getattr(high, name)[1]]) for name in ("K", "Q", "c")}
        high = us.models.AttentionLayer(O=high.O, V=high.V, constant=high.constant, **same)
        target = us.models.AttentionStack((low, high), "layer", 1e-5, networks=target.networks)
        with pytest.raises(us.errors.ModelMismatch, match="attend alike"):
            recovered(target)


@pytest.mark.parametrize(
    "kind",
    [
        {"layers": 1},
        {},
        pytest.param({"network": 8}, marks=pytest.mark.long),
        {"dim": 9, "final_norm": True, "norm": "rms"},
        pytest.param({"dim": 12, "final_norm": True, "norm": "rms"}, marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_heads_with_the_same_p_are_refused_with_that_among_the_reasons(seed, kind) -> None:
    """Their residues depend on each other, so that the answers' rank is below the number of heads."""
    target = stack(seed=seed, **kind)
    low = target.layers[0]
    low = replace(low, O=low.O[[0, 0]], V=low.V[[0, 0]])
    with pytest.raises(us.errors.ModelMismatch, match="fewer independent directions than there are heads"):
        recovered(replace(target, layers=(low, *target.layers[1:])))


def test_heads_of_one_layer_that_attend_alike_are_one_head_of_higher_rank() -> None:
    """Such a fit is ill-conditioned, and ends only with equations that are formed anew."""
    target = stack(9, head_dim=3, seed=301)
    low, high = target.layers
    same = {name: getattr(low, name)[[0, 0]] for name in ("K", "Q", "c")}
    low = us.models.AttentionLayer(O=low.O, V=low.V, constant=low.constant, **same)
    target = us.models.AttentionStack((low, high), "layer", 1e-5)
    model = recovered(target).model
    assert model.heads == (1, 2)
    X = np.random.default_rng(0).standard_normal((20, 7, 9))
    np.testing.assert_allclose(model(X), target(X), atol=1e-12)


def test_blocks_that_add_attention_and_network_at_once_have_the_same_heads() -> None:
    """As in GPT-J, without its positions: at infinity a network beside the heads is as one behind them."""
    f = stack(network=12)

    def parallel(X):
        for layer, network in zip(f.layers, f.networks, strict=True):
            seen = f.normalised(X)
            X = X + f._written(layer, seen, None) + network(seen)
        return X[:, -1]

    recovery = us.recover(us.oracle(parallel, 8, outputs=8), AttentionStack())
    assert us.models.distance(recovery.model, f) < 1e-9
    assert recovery.model.networks == "unknown"


@pytest.mark.parametrize("network", [0, 12])
def test_a_window_longer_than_what_was_asked_is_seen(network) -> None:
    f = stack(network=network, causal=True)

    def windowed(X):
        return f(X[:, -20:])

    with pytest.raises(us.errors.ModelMismatch, match="fresh queries"):
        us.recover(us.oracle(windowed, 8, outputs=8), AttentionStack())


@pytest.mark.parametrize("kind", [{"network": 12, "causal": True}, {"final_norm": True, "network": 12}, {}], ids=str)
def test_positions_that_are_added_to_tokens(kind) -> None:
    """As in GPT-2 and ViT: what a place adds shows in the residual, and turns no token that is long."""
    f = stack(9, **kind)
    places = 0.3 * np.random.default_rng(5).standard_normal((300, 9))

    def placed(X):
        return f(X + places[: X.shape[1]])

    recovery = us.recover(us.oracle(placed, 9, outputs=9), AttentionStack())
    assert us.models.distance(recovery.model, f) < 1e-8
    assert any("positions" in note for note in recovery.notes)


def test_scores_that_depend_on_places_are_refused_by_name() -> None:
    rope = Rope.ladder(4, 1e4)
    layer = us.models.AttentionLayer.random(8, 2, 4, norm="rms", positions=rope, residual=True, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match="change places"):
        recovered(layer)


def test_float32_answers() -> None:
    target = stack().astype("float32")
    recovery = recovered(target)
    assert not recovery.model.causal
    X = np.random.default_rng(0).standard_normal((50, 9, 8)).astype(np.float32)
    exact, found = (model.astype("float64")(X) for model in (target, recovery.model))
    assert np.linalg.norm(found - exact) / np.linalg.norm(exact - X[:, -1]) < 2e-6
    assert us.models.distance(recovery.model, target) <= recovery.certificate.stated_error


@pytest.mark.parametrize("eps", [1e-9, 1e-2])
def test_eps_far_from_the_first_guess(eps) -> None:
    model = recovered(stack(eps=eps)).model
    assert model.eps == pytest.approx(eps, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("seed", [8000, 8001, 8003])
def test_ranks_behind_the_noise_of_float32(seed) -> None:
    """At the first displacement some heads are not seen well enough to be put in order."""
    target = stack(16, 2, 2, 4, seed=seed).astype("float32")
    model = us.recover(us.oracle(target), AttentionStack(), seed=seed).model.astype("float64")
    X = np.random.default_rng(0).standard_normal((50, 9, 16)).astype(np.float32).astype(float)
    y = target.astype("float64")(X)
    assert np.linalg.norm(model(X) - y) / np.linalg.norm(y - X[:, -1]) < 2e-6


def test_heads_that_are_not_polished() -> None:
    target = stack(9, network=12)
    recovery = recovered(target, polish=False)
    assert us.models.distance(recovery.model, target) <= min(recovery.certificate.stated_error, 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stock", [False, True])
def test_a_torch_encoder(stock, seed) -> None:
    """As it is made, all its layers are copies of one; and with weights drawn anew."""
    torch = pytest.importorskip("torch")
    from tests.models.encoders import from_encoder

    torch.manual_seed(seed)
    block = torch.nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    encoder = torch.nn.TransformerEncoder(block, 3, enable_nested_tensor=False).eval()
    if not stock:
        with torch.no_grad():
            for part in encoder.parameters():
                part.copy_(
                    torch.nn.init.xavier_uniform_(part) if part.dim() > 1 else part + 0.2 * torch.randn_like(part)
                )
    recovery = us.recover(us.adapters.torch_module(encoder, 32), AttentionStack())
    assert recovery.model.heads == (4, 4, 4)
    assert us.models.distance(recovery.model, from_encoder(encoder)) < 5e-8


def test_one_layer_below_a_network() -> None:
    target = stack(layers=1, network=12, head_dim=4)
    assert us.models.distance(recovered(target).model, target) < 1e-9


@pytest.mark.parametrize(
    "kind",
    [
        {"network": 9, "norm": "rms"},
        pytest.param({"network": 8, "layers": 3, "activation": "silu", "causal": True}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_whole_encoder(kind) -> None:
    """Networks too: what is learned is called on ordinary sequences."""
    target = stack(9, head_dim=4, **kind)
    recovery = recovered(target, networks=True)
    model = recovery.model
    assert [len(net.b) for net in model.networks] == [kind["network"]] * len(target.layers)
    assert us.models.distance(model, target) <= min(1e-12, recovery.certificate.stated_error)
    assert model.causal == target.causal
    X = np.random.default_rng(0).standard_normal((20, 7, 9))
    np.testing.assert_allclose(model(X), target(X), atol=1e-12)
    assert "ordinary sequences" in [claim.name for claim in recovery.certificate.claims]


@pytest.mark.parametrize("kind", [{"head_dim": 4, "activation": "relu"}, {"head_dim": 2}], ids=str)
def test_networks_that_do_not_come_apart_stay_unknown(kind) -> None:
    """Slopes of a ReLU tell no scale; heads that write into few directions do not show the rest of a Jacobian."""
    target = stack(9, network=8, **kind)
    model = recovered(target, networks=True).model
    assert model.networks == "unknown"
    assert us.models.distance(model, target) < 1e-9


@pytest.mark.long
def test_a_wide_layer_beside_a_network_stays_within_what_a_stack_may_take() -> None:
    """Its second reading was refused as beyond any stack's bill from d = 128 on, after 174,000 queries."""
    target = stack(128, 1, 4, 32, network=64)
    recovery = recovered(target)
    assert recovery.model.heads == (4,)
    assert us.models.distance(recovery.model, target) < 1e-8
    assert recovery.usage.billed <= 0.85 * us.estimate(us.oracle(target), AttentionStack()).upper


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param({"dim": 256, "heads": 4, "softcap": 50.0}, id="faint cap at d=256"),
        pytest.param({"dim": 16, "heads": 2, "softcap": 5.0}, id="cap"),
        pytest.param({"dim": 16, "heads": 2, "qk_norm": True}, id="norms of queries and keys"),
    ],
)
def test_scores_of_another_kind_are_refused_where_heads_come_apart(kind, seed) -> None:
    """At d = 256 all rows of W had been read first: 157,000 queries, 70 seconds, and layers were said to be out of
    order."""
    layer = us.models.AttentionLayer.random(**kind, norm="pre", residual=True, seed=seed)
    with pytest.raises(us.errors.ModelMismatch, match="scores are not q'k") as refusal:
        recovered(layer)
    assert refusal.value.code is us.errors.Code.LAW
    assert refusal.value.recovery.usage.billed <= 10 * layer.dim


@pytest.mark.parametrize("norm", ["pre", "rms"])
@pytest.mark.parametrize("share", [1.0, 1e-6])
@pytest.mark.parametrize("seed", range(5))
def test_a_function_of_the_last_token_beside_heads_is_named_early(norm, share, seed) -> None:
    """They were told apart, read in full and refused for their order, at ten times the queries and for another reason;
    at d = 256 that took minutes."""
    rng = np.random.default_rng(seed)
    layer = us.models.AttentionLayer.random(16, 4, norm=norm, residual=True, seed=seed)
    into, out = rng.standard_normal((16, 24)) / 4, rng.standard_normal((24, 16)) / 5

    def parallel(tokens):
        last = tokens[:, -1]
        seen = last / np.sqrt((last**2).mean(axis=1, keepdims=True)) if share == 1.0 else last
        return layer(tokens) + share * np.maximum(seen @ into, 0) @ out

    with pytest.raises(us.errors.ModelMismatch, match="function of the last token alone") as refusal:
        us.recover(us.oracle(parallel, 16, outputs=16), AttentionStack(), seed=seed)
    assert refusal.value.code == us.errors.Code.NETWORK
    assert refusal.value.recovery.usage.billed < 200
