"""Reference models: the formula itself, counts as copies, safe softmax, files, distance modulo symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import unsoftmax as us
from unsoftmax.models import LowRankHead, MultiHead, ReluNetwork, SingleHead, Transformer

MODELS = {
    "SingleHead": SingleHead.random(5, norm=2.0, seed=1),
    "affine SingleHead": SingleHead(np.eye(5), np.arange(5.0), c=np.ones(5), constant=0.25),
    "LowRankHead": LowRankHead.random(5, 2, seed=1),
    "MultiHead": MultiHead.random(5, 3, norm=2.0, seed=1),
    "no head": MultiHead(np.zeros((0, 5, 5)), np.zeros((0, 5))),
    "ReluNetwork": ReluNetwork.random(5, 7, bias=True, seed=1),
    "Transformer": Transformer.random(5, 7, bias=True, residual=True, seed=1),
}
each = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def test_single_head_is_the_papers_formula() -> None:
    head = MODELS["SingleHead"]
    X = np.random.default_rng(0).standard_normal((4, 6, 5))
    for x, y in zip(X, head(X), strict=True):
        alpha = softmax(x @ head.W @ x[-1])
        assert y == pytest.approx(alpha @ x @ head.v, rel=1e-14)


def test_multi_head_is_the_sum_of_its_heads() -> None:
    model = MODELS["MultiHead"]
    X = np.random.default_rng(0).standard_normal((4, 6, 5))
    heads = sum(SingleHead(W, v)(X) for W, v in zip(model.W, model.v, strict=True))
    assert np.allclose(model(X), heads, rtol=1e-14)


def test_transformer_on_one_row_is_its_network() -> None:
    model = Transformer.random(5, 7, seed=1)
    x = np.random.default_rng(0).standard_normal((4, 1, 5))
    assert np.allclose(model(x), np.maximum(x[:, 0] @ model.A, 0) @ model.w_o)


@each
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_counts_are_copies_in_place(model, data) -> None:
    n = data.draw(st.integers(1, 4))
    counts = np.array([data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))])
    X = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((1, n, 5))
    copies = np.repeat(X[0], counts[0], axis=0)[None]
    assert np.allclose(model(X, counts), model(copies), rtol=1e-12, atol=1e-13)


def test_a_thousand_copies_cost_one_row() -> None:
    head = MODELS["SingleHead"]
    X = np.random.default_rng(0).standard_normal((1, 2, 5))
    few = head(X, np.array([[1, 1]]))
    many = head(X, np.array([[1000, 1]]))
    assert abs(many - X[0, 0] @ head.v) < abs(few - X[0, 0] @ head.v)


@each
def test_huge_scores_stay_finite(model) -> None:
    X = np.random.default_rng(0).standard_normal((3, 4, 5)) * 1e8
    assert np.isfinite(model(X)).all()


@each
def test_save_and_load_give_the_same_function(model, tmp_path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = us.models.load(tmp_path / "model.safetensors")
    X = np.random.default_rng(0).standard_normal((3, 4, 5))
    assert type(loaded) is type(model)
    assert np.array_equal(loaded(X), model(X))


@each
def test_distance_to_itself_is_zero(model) -> None:
    assert us.models.distance(model, model) < 1e-14


def test_distance_ignores_head_order_and_neuron_scaling() -> None:
    heads = MODELS["MultiHead"]
    assert us.models.distance(MultiHead(heads.W[::-1], heads.v[::-1]), heads) == 0
    net = ReluNetwork.random(5, 7, seed=1)
    scale = np.random.default_rng(0).uniform(0.1, 10, 7)
    order = np.random.default_rng(1).permutation(7)
    same = ReluNetwork((net.A * scale)[:, order], (net.w_o / scale)[order])
    assert us.models.distance(same, net) < 1e-15


def test_low_rank_distance_agrees_with_the_dense_one() -> None:
    a, b = LowRankHead.random(30, 3, seed=1), LowRankHead.random(30, 4, seed=2)
    dense = us.models.distance(SingleHead(a.W, a.v), SingleHead(b.W, b.v))
    assert us.models.distance(a, b) == pytest.approx(dense, rel=1e-12)


def test_random_heads_are_what_was_ordered() -> None:
    head = SingleHead.random(20, rank=3, norm=5.0, sparsity=0.9, seed=4)
    assert np.linalg.matrix_rank(head.W) == 3
    assert np.linalg.norm(head.W, 2) == pytest.approx(5.0)
    assert (head.v == 0).sum() == 18
    assert us.models.distance(head, SingleHead.random(20, rank=3, norm=5.0, sparsity=0.9, seed=4)) == 0
    assert us.models.distance(head, SingleHead.random(20, rank=3, norm=5.0, sparsity=0.9, seed=5)) > 0.1


def test_parameters_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        MODELS["SingleHead"].W[0, 0] = 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SingleHead(np.eye(3), np.ones(4)), r"\(4, 4\)"),
        (lambda: SingleHead(np.full((2, 2), np.nan), np.ones(2)), "finite"),
        (lambda: SingleHead(np.eye(2) * 1j, np.ones(2)), "real numbers"),
        (lambda: LowRankHead(np.ones((3, 2)), np.ones((3, 1)), np.ones(3)), "K"),
        (lambda: ReluNetwork(np.ones((3, 2)), np.ones(3)), "w_o"),
        (lambda: SingleHead.random(4, rank=9), "between 0 and dim"),
        (lambda: SingleHead.random(4, sparsity=1.0), "sparsity"),
        (lambda: MODELS["SingleHead"](np.ones((2, 3, 4))), r"\(batch, N, 5\)"),
    ],
)
def test_bad_parameters_are_refused_with_a_reason(make, words) -> None:
    with pytest.raises(us.errors.InvalidArgument, match=words):
        make()


def test_damaged_and_foreign_files_are_typed_errors(tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(us.errors.FileFormatError, match="cannot be read"):
        us.models.load(path)
    path.write_bytes(b"not a model")
    with pytest.raises(us.errors.FileFormatError, match="not a safetensors file"):
        us.models.load(path)
    from safetensors.numpy import save_file

    save_file({"W": np.eye(2)}, path)
    with pytest.raises(us.errors.FileFormatError, match="format"):
        us.models.load(path)
    save_file({"W": np.eye(2)}, path, {"format": "unsoftmax-model/1", "class": "SingleHead"})
    with pytest.raises(us.errors.FileFormatError, match="does not hold a SingleHead"):
        us.models.load(path)


@pytest.mark.parametrize("sparsity", [0.0, 0.5])
@pytest.mark.parametrize("margin", [0.0, 0.1, 0.25])
def test_random_values_keep_their_margin(sparsity: float, margin: float) -> None:
    for seed in range(20):
        for head in (
            us.models.SingleHead.random(16, sparsity=sparsity, margin=margin, seed=seed),
            us.models.LowRankHead.random(16, 2, sparsity=sparsity, margin=margin, seed=seed),
        ):
            sizes = np.abs(head.v[head.v != 0])
            assert len(sizes) == round(16 * (1 - sparsity))
            assert sizes.min() >= margin * (1 - 1e-12)
            assert np.linalg.norm(head.v) == pytest.approx(1.0, abs=1e-14)
    several = us.models.MultiHead.random(16, 3, margin=margin, seed=1)
    assert np.abs(several.v).min() >= margin * (1 - 1e-12)


def test_a_margin_no_unit_vector_has_is_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="`margin`"):
        us.models.SingleHead.random(16, margin=0.26)
