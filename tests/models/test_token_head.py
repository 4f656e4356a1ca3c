"""The token head: what it computes, its gauge, its files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us

HEAD = us.models.TokenHead.random(30, 4, 1.5, seed=3)


def sequences(n: int, length: int, seed: int = 0, vocabulary: int = 30) -> np.ndarray:
    return np.random.default_rng(seed).integers(vocabulary, size=(n, length))


def test_it_is_softmax_over_the_last_tokens_column() -> None:
    S = HEAD.scores[0] @ HEAD.scores[1].T
    for row in sequences(20, 5):
        weights = np.exp(S[row, row[-1]])
        assert HEAD(row[None])[0] == pytest.approx(weights @ HEAD.values[row] / weights.sum(), rel=1e-13)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 6))
def test_counts_are_repetition(seed, length) -> None:
    rng = np.random.default_rng(seed)
    ids, counts = sequences(1, length, seed), rng.integers(1, 5, (1, length))
    assert HEAD(ids, counts) == pytest.approx(HEAD(np.repeat(ids[0], counts[0])[None]), abs=1e-13)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.floats(-1e3, 1e3))
def test_a_constant_per_column_changes_nothing(seed, size) -> None:
    shift = np.random.default_rng(seed).uniform(-1, 1, 30) * size
    K, Q = HEAD.scores
    moved = us.models.TokenHead((np.hstack([K, np.ones((30, 1))]), np.hstack([Q, shift[:, None]])), HEAD.values)
    assert us.models.distance(moved, HEAD) < 1e-11
    ids = sequences(50, 4, seed)
    assert np.abs(moved(ids) - HEAD(ids)).max() < 1e-10


def test_canonical_has_a_zero_diagonal_and_the_same_answers() -> None:
    canonical = HEAD.canonical()
    K, Q = canonical.scores
    assert np.abs(np.einsum("vr,vr->v", K, Q)).max() < 1e-13
    assert np.abs(canonical.gaps() - HEAD.gaps()).max() < 1e-13
    ids = sequences(50, 4)
    assert np.abs(canonical(ids) - HEAD(ids)).max() < 1e-13


def test_distance_sees_an_error_in_one_gap() -> None:
    S = HEAD.scores[0] @ HEAD.scores[1].T
    wrong = S.copy()
    wrong[3, 7] += 1e-3
    assert us.models.distance(us.models.TokenHead(S, HEAD.values), HEAD) < 1e-14
    assert us.models.distance(us.models.TokenHead(wrong, HEAD.values), HEAD) == pytest.approx(
        1e-3 / np.linalg.norm(HEAD.gaps()), rel=1e-6
    )


def test_random_has_the_asked_deviation() -> None:
    head = us.models.TokenHead.random(400, 8, 3.0, seed=1)
    assert (head.scores[0] @ head.scores[1].T).std() == pytest.approx(3.0, rel=1e-9)


def test_files_keep_everything(tmp_path) -> None:
    full = us.models.TokenHead(
        HEAD.scores, HEAD.values, forbidden=np.array([3, 4]), own=np.zeros(30), length=2, errors=HEAD.scores
    )
    full.save(tmp_path / "head.safetensors")
    again = us.models.load(tmp_path / "head.safetensors")
    assert isinstance(again, us.models.TokenHead)
    assert again.length == 2
    assert again.known.tolist() == full.known.tolist()
    for name, value in full.parameters().items():
        assert np.array_equal(again.parameters()[name], value)


def test_it_says_nothing_about_forbidden_ids() -> None:
    head = us.models.TokenHead(HEAD.scores, HEAD.values, forbidden=np.array([5]))
    assert np.isnan(head.gaps()[5]).all()
    assert np.isnan(head.gaps()[:, 5]).all()
    assert head.bounds(np.array([5]), np.array([1]))[0] == np.inf
    with pytest.raises(us.errors.InvalidArgument, match="knows nothing"):
        head(np.array([[1, 5]]))


@pytest.mark.parametrize(
    "ids", [np.zeros((2, 3)), np.zeros(3, dtype=int), np.array([[30]]), np.array([[-1]]), np.zeros((2, 0), dtype=int)]
)
def test_what_is_not_a_batch_of_ids_is_refused(ids) -> None:
    with pytest.raises(us.errors.InvalidArgument):
        HEAD(ids)


def test_embedded_heads_answer_on_vectors_and_on_ids() -> None:
    E = np.random.default_rng(0).standard_normal((30, 6))
    plain = us.models.SingleHead.random(6, norm=0.5, seed=1)
    head = us.models.EmbeddedHead(plain.W, plain.v, c=np.ones(6), constant=0.5, embeddings=E)
    ids = sequences(40, 4)
    assert np.abs(head(ids) - head(E[ids])).max() == 0.0
    assert np.abs(head.over_vocabulary()(ids) - head(ids)).max() < 1e-13
    low = us.models.LowRankHead.random(6, 2, norm=0.5, seed=1)
    factored = us.models.EmbeddedLowRankHead(low.K, low.Q, low.v, embeddings=E)
    assert us.models.distance(factored, low) < 1e-15
    assert np.abs(factored.over_vocabulary()(ids) - low(E[ids])).max() < 1e-13


def test_numbers_stay_numbers_in_files(tmp_path) -> None:
    E = np.random.default_rng(0).standard_normal((30, 6))
    plain = us.models.SingleHead.random(6, norm=0.5, seed=1)
    us.models.EmbeddedHead(plain.W, plain.v, constant=0.5, embeddings=E).save(tmp_path / "head")
    again = us.models.load(tmp_path / "head")
    assert isinstance(again.constant, float)
    assert again.constant == 0.5
