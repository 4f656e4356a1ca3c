"""References and targets off the usual path: no wrong name, no false alarm, no crash."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.inversion import decimal_error
from unsoftmax.models.feed_forward import FeedForward

D = 12
SINGLE = us.models.SingleHead.random(D, norm=2.0, seed=21)
HEADS = us.models.MultiHead.random(D, 3, norm=2.0, seed=22)


@pytest.mark.parametrize(("dim", "heads"), [(2, 2), (2, 4), (3, 4), (4, 4)])
def test_more_heads_than_dimensions_a_changed_weight_is_no_arithmetic(dim: int, heads: int) -> None:
    model = us.models.MultiHead.random(dim, heads, norm=2.0, seed=dim)
    assert us.compare(us.oracle(model), model).verdict == "same"
    W = np.array(model.W)
    W[-1, 0, -1] += 0.01
    result = us.compare(us.oracle(us.models.MultiHead(W, model.v)), model)
    assert (result.verdict, result.heads) == ("sparse", (heads - 1,))
    assert np.abs(result.delta - (W - model.W)).max() <= 1e-6


def test_a_reference_that_answers_in_float32_is_no_difference() -> None:
    short = SINGLE.astype("float32")
    result = us.compare(us.oracle(SINGLE), lambda X: np.asarray(short(X)))
    assert result.verdict == "same"
    assert any("the reference are float32" in note for note in result.notes)
    assert not us.Monitor(lambda X: np.asarray(short(X))).step(us.oracle(SINGLE)).alarm
    warmer = us.models.SingleHead(SINGLE.W * 1.01, SINGLE.v)
    assert us.compare(us.oracle(warmer), lambda X: np.asarray(short(X))).differs


def test_few_decimals_are_no_other_arithmetic() -> None:
    result = us.compare(us.oracle(lambda X: np.round(SINGLE(X), 4), D), SINGLE)
    assert result.verdict == "same"
    assert any("4 digits after the point" in note for note in result.notes)
    assert 1e-6 < result.detectable < 1e-3
    for scale in (1e-12, 1e12):
        sized = us.models.SingleHead(SINGLE.W, SINGLE.v * scale)
        exact = us.compare(us.oracle(sized), sized)
        assert (exact.verdict, exact.notes) == ("same", ())
        assert exact.detectable < 1e-13


def test_numbers_far_below_the_last_digit_have_no_decimals() -> None:
    assert decimal_error(1e-12 * np.random.default_rng(0).standard_normal(40)) == 0
    assert decimal_error(np.round(np.random.default_rng(0).standard_normal(40), 4)) == 5e-5


@pytest.mark.parametrize("part", [0.01, 0.1, 1.0])
def test_an_entry_behind_few_decimals_is_given_its_size(part: float) -> None:
    W = np.array(SINGLE.W)
    W[3, 4] += part * np.linalg.norm(W)
    target = us.models.SingleHead(W, SINGLE.v)
    result = us.compare(us.oracle(lambda X: np.round(target(X), 4), D, tolerance=5e-5), SINGLE)
    assert result.verdict in ("sparse", "low rank")
    assert result.delta[3, 4] == pytest.approx(part * np.linalg.norm(SINGLE.W), rel=0.02)


def test_a_large_change_behind_few_decimals_lies_in_its_interval() -> None:
    change = np.random.default_rng(1).standard_normal((D, D))
    change *= 0.1 * np.linalg.norm(SINGLE.W) / np.linalg.norm(change)
    target = us.models.SingleHead(SINGLE.W + change, SINGLE.v)
    result = us.compare(us.oracle(lambda X: np.round(target(X), 4), D, tolerance=5e-5), SINGLE)
    assert result.verdict == "dense"
    size = result.evidence["scores"]["0"]
    assert size["low"] <= 0.1 <= size["high"]


@pytest.mark.parametrize("heads", [(0,), (0, 2)])
def test_key_offsets_are_told_from_score_matrices(heads: tuple[int, ...]) -> None:
    c = np.zeros((3, D))
    c[list(heads)] = 0.1 * np.random.default_rng(2).standard_normal((len(heads), D))
    result = us.compare(us.oracle(us.models.MultiHead(HEADS.W, HEADS.v, c=c)), HEADS)
    assert (result.verdict, result.heads, list(result.changes)) == ("dense", heads, ["c"])
    assert np.abs(result.changes["c"] - c).max() <= 1e-8
    shipped = us.models.SingleHead(SINGLE.W, SINGLE.v, c=c[0])
    moved = np.array(c[0])
    moved[3] += 0.01
    one = us.compare(us.oracle(us.models.SingleHead(SINGLE.W, SINGLE.v, c=moved)), shipped)
    assert one.verdict == "sparse"
    assert "c[3] by 0.01" in one.sentence


def test_key_offsets_of_one_head_in_a_model_of_several() -> None:
    shipped = us.models.MultiHead(SINGLE.W[None], SINGLE.v[None])
    c = np.zeros((1, D))
    c[0, 3] = 0.1
    result = us.compare(us.oracle(us.models.MultiHead(shipped.W, shipped.v, c=c)), shipped)
    assert result.verdict == "sparse"
    assert "c[0, 3] by 0.1" in result.sentence


def test_heads_that_write_nothing_or_the_same_are_no_crash() -> None:
    for source in (HEADS.v[0], np.zeros(D)):
        v = np.array(HEADS.v)
        v[1] = source
        model = us.models.MultiHead(HEADS.W, v)
        same = us.compare(us.oracle(model), model)
        assert same.verdict == "same"
        assert same.detectable < 1e-13
        W = np.array(HEADS.W)
        W[2, 2, 3] += 0.05
        result = us.compare(us.oracle(us.models.MultiHead(W, v)), model)
        assert (result.verdict, result.heads) == ("sparse", (2,))
    silent = us.models.MultiHead(HEADS.W, np.zeros((3, D)))
    result = us.compare(us.oracle(silent), silent)
    assert result.verdict == "same"
    assert "no change of these would have been seen" in result.sentence
    assert us.compare(us.oracle(HEADS), silent).differs


def test_weights_beyond_float16_are_compared() -> None:
    large = us.models.SingleHead(SINGLE.W * 1e8, SINGLE.v)
    W = np.array(large.W)
    W[1, 2] += 1e7
    result = us.compare(us.oracle(us.models.SingleHead(W, large.v)), large)
    assert (result.verdict, result.heads) == ("sparse", (0,))


def test_stacks_with_gelu_networks_are_references() -> None:
    stack = us.models.AttentionStack.random(6, 1, 1, causal=True, network=8, seed=3)
    assert us.compare(us.oracle(stack), stack).verdict == "same"
    x = np.arange(-72, 73) / 8
    network = FeedForward(np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.zeros(1), "gelu")
    wide = FeedForward(
        *(np.asarray(a, dtype=np.longdouble) for a in (network.A, network.b, network.C, network.constant))
    )
    y = wide(x[:, None].astype(np.longdouble))
    assert y.dtype == np.longdouble
    assert np.abs(y - network(x[:, None])).max() <= 1e-15
    # x Phi(x) - x/2 is even.
    assert np.abs((y - x[:, None] / 2) - (y - x[:, None] / 2)[::-1]).max() <= 8 * np.finfo(np.longdouble).eps


def test_one_entry_of_an_array_with_directions_that_no_answer_shows_has_rank_one() -> None:
    layer = us.models.AttentionLayer.random(D, 2, scale=2.0, norm="pre", residual=True, seed=4)
    K = np.array(layer.K)
    K[1, 2, 3] += 0.05
    result = us.compare(us.oracle(replace(layer, K=K)), layer)
    assert (result.verdict, result.rank, result.evidence["rank"]) == ("sparse", 1, 1)


def test_what_was_asked_is_said() -> None:
    evidence = us.compare(us.oracle(SINGLE), SINGLE).evidence
    assert max(evidence["lengths asked"]) == 512
    low, high = evidence["norms asked"]
    assert 0 < low < high
    assert f"{high:.2g}" in evidence["not looked at"]
    tokens = us.models.TokenHead.random(4000, 3, seed=1)
    evidence = us.compare(us.token_oracle(tokens), tokens).evidence
    assert evidence["norms asked"] is None
    assert "of 4,000 token ids" in evidence["not looked at"]


def test_a_monitor_in_memory_counts_calls_at_the_same_time() -> None:
    watch = us.Monitor(SINGLE)
    steps: list[Any] = []
    workers = [threading.Thread(target=lambda: steps.append(watch.step(us.oracle(SINGLE)))) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(step.calls for step in steps) == [1, 2, 3, 4, 5, 6]


def test_short_tokens_hide_no_structure() -> None:
    W = np.array(SINGLE.W)
    W[3, 4] += 0.01 * np.linalg.norm(W)
    update = np.outer(*np.random.default_rng(3).standard_normal((2, D)))
    update *= 0.01 * np.linalg.norm(SINGLE.W) / np.linalg.norm(update)
    for limit in (0.5, 0.1):
        one = us.compare(us.oracle(us.models.SingleHead(W, SINGLE.v), max_norm=limit), SINGLE)
        assert one.verdict == "sparse"
        assert np.array_equal(one.delta != 0, W != SINGLE.W)
        low = us.compare(us.oracle(us.models.SingleHead(SINGLE.W + update, SINGLE.v), max_norm=limit), SINGLE)
        assert (low.verdict, low.rank) == ("low rank", 1)
        assert np.linalg.norm(low.delta - update) <= 1e-5 * np.linalg.norm(update)


LAYER = us.models.AttentionLayer.random(8, 2, scale=2.0, seed=23)


def updated(name: str, size: float) -> Any:
    stored = np.array(getattr(LAYER, name))
    rng = np.random.default_rng(5)
    change = (rng.standard_normal((stored.size // 8, 1)) @ rng.standard_normal((1, 8))).reshape(stored.shape)
    return replace(LAYER, **{name: stored + change * (size * np.linalg.norm(stored) / np.linalg.norm(change))})


@pytest.mark.parametrize("name", ["Q", "V"])
def test_a_large_update_of_a_layer_is_no_other_layer(name: str) -> None:
    result = us.compare(us.oracle(updated(name, 0.3)), LAYER)
    assert (result.verdict, result.rank, result.evidence["matrix"]) == ("low rank", 1, name)


def test_layers_behind_few_decimals_or_short_tokens_are_not_mistaken() -> None:
    target = updated("Q", 0.01)
    rounded = us.compare(us.oracle(lambda X: np.round(target(X), 5), 8, outputs=8, tolerance=5e-6), LAYER)
    assert rounded.verdict in ("dense", "low rank")
    assert "Q" in rounded.sentence
    short = us.compare(us.oracle(target, max_norm=0.5, max_length=2), LAYER)
    for h, size in short.evidence.get("scores", {}).items():
        true = np.linalg.norm(target.W[int(h)] - LAYER.W[int(h)]) / np.linalg.norm(LAYER.W[int(h)])
        assert size["low"] <= true <= size["high"]


def test_single_tokens_show_values_alone() -> None:
    warmer = us.models.SingleHead(SINGLE.W * 1.1, SINGLE.v)
    result = us.compare(us.oracle(warmer, max_length=1), SINGLE)
    assert result.verdict == "same"
    assert any("shows a change of W" in note for note in result.notes)
    v = np.array(SINGLE.v)
    v[3] += 0.01
    assert us.compare(us.oracle(us.models.SingleHead(SINGLE.W, v), max_length=1), SINGLE).differs


def test_an_update_of_an_ill_conditioned_output_projection_is_named() -> None:
    """Inverting the value projection lost more digits than fresh answers allow."""
    layer = us.models.AttentionLayer.random(40, 4, scale=2.0, seed=24)
    V = np.array(layer.V).reshape(40, 40)
    left, sizes, right = np.linalg.svd(V)
    layer = replace(layer, V=((left * np.geomspace(1, 1e-4, 40) * sizes[0]) @ right).reshape(layer.V.shape))
    rng = np.random.default_rng(6)
    change = 0.01 * rng.standard_normal((40, 2)) @ rng.standard_normal((2, 40))
    target = replace(layer, O=layer.O + change.reshape(40, 4, 10).transpose(1, 0, 2))
    result = us.compare(us.oracle(target), layer)
    assert (result.verdict, result.rank, result.evidence["matrix"]) == ("low rank", 2, "O")


def test_a_difference_of_long_sequences_alone_is_said_to_be_one() -> None:
    result = us.compare(us.oracle(lambda X: SINGLE(X) * (1.0 if X.shape[1] < 300 else 1.0001), D), SINGLE)
    assert (result.verdict, result.differs) == ("unexplained", True)
    assert "longer sequences are not" in result.sentence
