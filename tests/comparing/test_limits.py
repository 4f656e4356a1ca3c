"""Long sums, key offsets, few directions, short sequences and tokens: nothing is claimed that these do not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from benchmarks.compare_kernels import ALPHA, alarmed
from tests.comparing.changes import entry, explains, with_change
from unsoftmax.comparing.detection import plan
from unsoftmax.comparing.references import reference_of


def backwards(x: Any, axis: int) -> Any:
    """A sum term by term."""
    return np.cumsum(np.flip(x, axis), axis=axis, dtype=x.dtype).take(-1, axis=axis)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", [5001, 5002, 5005, 5014, 5024])
def test_token_heads_summed_term_by_term_are_the_same(seed: int, dtype: str) -> None:
    model = us.models.TokenHead.random(20, 4, seed=seed).astype(dtype)
    weights = model.parameters()

    def kernel(ids: Any) -> Any:
        scores = backwards(weights["keys"][ids] * weights["queries"][ids[:, -1]][:, None], 2)
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        share /= backwards(share, 1)[:, None]
        return backwards(share * weights["values"][ids], 1).astype(np.float64)

    result = us.compare(us.token_oracle(kernel, 20, dtype=dtype), model, seed=seed)
    assert result.verdict == "same"
    assert max(result.evidence["lengths asked"]) == 512


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (us.models.ReluNetwork.random(8, 8, bias=True, seed=2719), "A"),
        (us.models.TokenHead.random(20, 4, seed=2722).astype("float32"), "queries"),
    ],
)
def test_the_smallest_change_said_to_show_does_where_few_directions_show(model: Any, name: str) -> None:
    dtype = "float32" if hasattr(model, "vocabulary") else "float64"
    weights = {k: np.asarray(a, dtype=np.float64) for k, a in model.parameters().items()}
    oracle = us.token_oracle if hasattr(model, "vocabulary") else us.oracle
    spec, rng, missed = oracle(model, dtype=dtype).spec, np.random.default_rng(5), 0
    made = plan(reference_of(model, spec), spec, dtype, ALPHA, None, 2700)
    for _ in range(200):
        change = rng.standard_normal(weights[name].shape)
        change *= made.detectable[name] * np.linalg.norm(weights[name]) / np.linalg.norm(change)
        missed += not alarmed(
            made, type(model).from_parameters(weights | {name: weights[name] + change}).astype(dtype), 0
        )
    assert missed <= 2


@pytest.mark.parametrize(("seed", "heads", "digits"), [(3, 1, 2), (5, 1, 2), (6, 1, 1), (7, 1, 2), (26, 2, None)])
def test_key_offsets_do_not_make_a_changed_weight_arithmetic(seed: int, heads: int, digits: int | None) -> None:
    plain = us.models.MultiHead.random(12, heads, norm=2.0, seed=seed)
    c = np.random.default_rng(seed).standard_normal((heads, 12))
    model = us.models.MultiHead(plain.W, plain.v, c=c, constant=0.7 if seed % 2 else 0.0)
    target = with_change(model, "W", entry(model.W, 0.03, seed))
    if digits is None:
        result = us.compare(us.oracle(target), model)
        assert result.verdict == "sparse"
        assert explains(result, model, target)
    else:
        rounded = us.oracle(lambda X: np.round(target(X), digits), 12, tolerance=0.5 * 10.0**-digits)
        result = us.compare(rounded, model)
        assert result.verdict in ("dense", "sparse", "low rank")
        assert "by 0 of" not in result.sentence


@pytest.mark.parametrize("name", ["K", "Q", "O"])
def test_short_sequences_tell_an_array_by_as_many_as_that_takes(name: str) -> None:
    layer = us.models.AttentionLayer.random(12, 2, norm="pre", residual=True, scale=2.0, seed=905)
    target = with_change(layer, name, entry(getattr(layer, name), 0.03, 0))
    result = us.compare(us.oracle(target, max_length=2), layer)
    assert (result.verdict, list(result.changes)) == ("sparse", [name])
    assert explains(result, layer, target)


def test_one_head_of_many_dimensions_behind_a_norm_is_fitted() -> None:
    layer = us.models.AttentionLayer.random(20, 1, norm="rms", residual=True, scale=2.0, seed=40)
    target = with_change(layer, "K", entry(layer.K, 0.03, 0))
    result = us.compare(us.oracle(target), layer)
    assert result.verdict in ("sparse", "low rank")
    assert explains(result, layer, target)


@pytest.mark.parametrize("heads", [1, 3])
def test_short_tokens_show_what_they_can(heads: int) -> None:
    model = us.models.MultiHead.random(12, heads, norm=2.0, seed=900)
    result = us.compare(us.oracle(model, max_norm=1e-3), model)
    assert result.verdict == "same"
    assert result.detectable < 1e-6
    moved = replace(model, W=model.W * (1 + 1e-4 * np.random.default_rng(0).standard_normal(model.W.shape)))
    assert us.compare(us.oracle(moved, max_norm=1e-3), model, explain=False).differs


def test_an_entry_for_which_another_would_do_is_not_named() -> None:
    network = us.models.ReluNetwork.random(8, 8, bias=True, seed=919)
    target = with_change(network, "A", entry(network.A, 0.03, 0))
    short = us.compare(us.oracle(target, max_norm=1e-3), network)
    assert list(short.changes) == ["A"]
    assert short.verdict != "sparse"
    assert "A[" not in short.sentence
    assert us.compare(us.oracle(target, max_norm=0.3), network).verdict == "sparse"
