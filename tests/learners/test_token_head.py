"""Token access: gaps at about the degrees of freedom, strong heads, and the right verdict where something is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax as us
from tests.weights import minilm_tokens

Learner = us.learners.TokenHead
Head = us.models.TokenHead


def within_bounds(model: Head, truth: Head) -> bool:
    """Every known gap lies within its stated error (that of the diagonal included)."""
    left, right = model.errors
    bounds = left @ right.T + (np.einsum("vm,vm->v", left, right) if model.own is None else 0.0)
    known = np.ix_(model.known, model.known)
    return bool((np.abs(model.gaps() - truth.gaps()) <= bounds + 1e-13)[known].all())


def check(head: Head, error: float, dof: float, seed: int = 0, **options) -> us.Recovery:
    recovery = us.recover(us.token_oracle(head, **options), Learner(), seed=seed)
    usage, V = recovery.usage, len(recovery.model.known)
    rank = len(recovery.model.scores[0].T) - 1
    assert us.models.distance(recovery.model, head) <= error
    spent = usage.billed if V >= 1000 else usage.billed - usage.phases["pilot"] - usage.phases["verify"]
    assert spent <= dof * us.theory.token_head_unknowns(V, rank)
    assert within_bounds(recovery.model, head)
    return recovery


def over_embeddings(V: int, d: int, rank: int, deviation: float, seed: int) -> Head:
    """Scores and values of random embeddings: values and scores are not independent, as in a real head."""
    rng = np.random.default_rng(seed)
    E, K, Q = rng.standard_normal((V, d)), rng.standard_normal((rank, d)), rng.standard_normal((rank, d))
    keys, queries = E @ K.T, E @ Q.T
    return Head((keys * (deviation / (keys @ queries.T).std()), queries), E @ rng.standard_normal(d))


@pytest.mark.parametrize("make", [Head.random, lambda V, r, s, seed: over_embeddings(V, 64, r, s, seed)])
def test_scores_of_deviation_1_at_less_than_the_unknowns(make) -> None:
    recovery = check(make(1000, 16, 1.0, seed=0), 1e-12, 1.0, 0)
    phases = recovery.usage.phases
    assert phases["values"] + phases["main"] == us.theory.token_head_queries(1000, 16)
    assert recovery.certificate.holds


def test_scores_of_deviation_8() -> None:
    check(over_embeddings(400, 64, 8, 8.0, 0), 1e-7, 1.6, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_bars_on_twenty_seeds(seed) -> None:
    for make in (Head.random, lambda V, r, s, seed: over_embeddings(V, 64, r, s, seed)):
        check(make(1000, 16, 1.0, seed=seed), 1e-10, 1.1, seed)
        check(make(1000, 16, 8.0, seed=seed), 1e-6, 1.6, seed)


@pytest.mark.parametrize(("head", "error", "dof"), [(0, 1e-9, 1.1), (5, 1e-9, 1.1), (2, 1e-5, 1.7)])
def test_real_head_over_some_word_embeddings(head, error, dof) -> None:
    check(minilm_tokens(head, 1000, 1400), error, dof)


@pytest.mark.long
@pytest.mark.parametrize(("head", "error", "dof"), [(0, 1e-9, 1.1), (5, 1e-9, 1.1), (2, 1e-5, 1.7)])
def test_real_head_over_3000_word_embeddings(head, error, dof) -> None:
    target = minilm_tokens(head, 1000, 4000)
    recovery = us.recover(us.token_oracle(target), Learner())
    assert us.models.distance(recovery.model, target) <= error
    assert recovery.usage.billed <= dof * us.theory.token_head_unknowns(3000, 32)


@settings(max_examples=25, deadline=None)
@given(V=st.integers(2, 30), rank=st.integers(0, 30), deviation=st.floats(0.01, 3.0), seed=st.integers(0, 10**6))
def test_any_small_vocabulary_and_rank(V, rank, deviation, seed) -> None:
    head = Head.random(V, min(rank, V), deviation, seed=seed)
    recovery = us.recover(us.token_oracle(head), Learner(), seed=seed)
    assert within_bounds(recovery.model, head)
    assert np.abs(recovery.model.gaps() - head.gaps()).max() < 1e-7


@pytest.mark.parametrize(("V", "seed"), [pytest.param(60, 904, marks=pytest.mark.long), (40, 905)])
def test_scores_of_full_rank_are_read_to_the_last_entry(V, seed) -> None:
    rng = np.random.default_rng(seed)
    head = Head(rng.normal(size=(V, V)), rng.normal(size=V))
    recovery = us.recover(us.token_oracle(head), Learner())
    assert np.abs(recovery.model.gaps() - head.gaps()).max() < 1e-11
    assert within_bounds(recovery.model, head)


def test_a_block_of_full_rank_inside_uniform_attention_is_found() -> None:
    rng = np.random.default_rng(3)
    S = np.zeros((40, 40))
    S[:30, :30] = rng.normal(size=(30, 30))
    head = Head(S, rng.normal(size=40))
    recovery = us.recover(us.token_oracle(head), Learner())
    assert np.abs(recovery.model.gaps() - head.gaps()).max() < 1e-11


def test_two_tokens_and_one() -> None:
    head = Head.random(2, 2, 1.0, seed=1)
    recovery = us.recover(us.token_oracle(head), Learner())
    assert us.models.distance(recovery.model, head) < 1e-14
    assert recovery.usage.phases["main"] == 2
    with pytest.raises(us.errors.NotIdentifiable):
        us.recover(us.token_oracle(Head.random(1, 1)), Learner())


def test_uniform_attention_is_rank_0() -> None:
    recovery = us.recover(us.token_oracle(Head.random(50, 0)), Learner())
    assert np.abs(recovery.model.gaps()).max() < 1e-14
    assert recovery.usage.phases["main"] == 49
    assert "rank 0" in recovery.notes[0]


def test_equal_values_everywhere_are_not_identifiable() -> None:
    head = Head(Head.random(40, 3).scores, np.full(40, 0.7))
    with pytest.raises(us.errors.NotIdentifiable, match="same value") as error:
        us.recover(us.token_oracle(head), Learner())
    assert error.value.recovery.usage.asked == 40


def test_duplicated_values_are_grouped_and_told_apart() -> None:
    head = Head.random(200, 4, 1.0, seed=2)
    values = head.values.copy()
    values[:10] = values[10:20]
    recovery = check(Head(head.scores, values), 1e-12, 1.1)
    assert "20 tokens in 10 groups share a value" in recovery.notes[1]
    assert not any("identically" in note for note in recovery.notes)


def test_identical_tokens_are_reported() -> None:
    head = Head.random(60, 3, 1.0, seed=2)
    same = np.arange(60)
    same[7] = same[21] = 3
    K, Q = head.scores
    recovery = check(Head((K[same], Q[same]), head.values[same]), 1e-12, 1.2)
    assert any("identically: {3, 7, 21}" in note for note in recovery.notes)


@pytest.mark.parametrize("values", [np.arange(60) % 2, np.eye(60)[5]], ids=["two values", "one token differs"])
def test_few_distinct_values_suffice(values) -> None:
    check(Head(Head.random(60, 3, 1.0, seed=1).scores, values.astype(float)), 1e-12, 1.3)


def test_forbidden_ids_are_never_sent_and_never_spoken_of() -> None:
    head = Head.random(80, 3, 1.0, seed=4)
    recovery = check(head, 1e-12, 1.2, forbidden=[0, 17, 79])
    assert recovery.model.known.tolist() == [i for i in range(80) if i not in (0, 17, 79)]


@pytest.mark.parametrize("max_length", [2, 3, 10])
def test_short_sequences(max_length) -> None:
    check(Head.random(80, 3, 2.0, seed=4), 1e-11, 1.3, max_length=max_length)
    with pytest.raises(us.errors.DomainError):
        us.recover(us.token_oracle(Head.random(80, 3), max_length=1), Learner())


@pytest.mark.parametrize("change", [+100.0, -100.0])
def test_a_token_beyond_reach_is_left_out_and_named(change) -> None:
    head = Head.random(100, 4, 1.0, seed=3)
    S = head.scores[0] @ head.scores[1].T
    S[7] += change
    target = Head(S, head.values)
    recovery = us.recover(us.token_oracle(target), Learner())
    assert recovery.model.known.tolist() == [i for i in range(100) if i != 7]
    assert any("ids 7)" in note for note in recovery.notes)
    assert us.models.distance(recovery.model, target) < 1e-11


def test_hopelessly_strong_heads_are_refused() -> None:
    for scale in (100.0, 150.0):
        with pytest.raises(us.errors.NotIdentifiable, match="no allowed"):
            us.recover(us.token_oracle(Head.random(100, 4, scale, seed=3)), Learner())


@pytest.mark.parametrize("tau", [1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("adversarial", [False, True])
def test_approximate_answers_stay_within_the_stated_bounds(tau, adversarial) -> None:
    head = Head.random(60, 3, 1.0, seed=1)
    oracle = us.oracles.Perturbed(us.token_oracle(head), tau, adversarial=adversarial)
    recovery = us.recover(oracle, Learner())
    assert within_bounds(recovery.model, head)
    assert us.models.distance(recovery.model, head) < 2e3 * tau


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_float32_targets_declared_or_not(dtype) -> None:
    head = Head.random(100, 4, 1.0, seed=1)
    recovery = us.recover(us.token_oracle(head.astype("float32"), dtype=dtype), Learner())
    assert within_bounds(recovery.model, head)
    assert us.models.distance(recovery.model, head) < 1e-4


@pytest.mark.parametrize("decimals", [5, 7])
def test_undeclared_decimals_are_a_stated_tolerance(decimals) -> None:
    head = Head.random(100, 4, 1.0, seed=1)
    recovery = us.recover(us.token_oracle(lambda ids: np.round(head(ids), decimals), 100), Learner())
    assert any("few decimals" in note for note in recovery.notes)
    assert within_bounds(recovery.model, head)
    assert us.models.distance(recovery.model, head) < 1e3 * 10.0**-decimals
    assert recovery.usage.billed < 2000


def test_undeclared_noise_is_called_noise_at_once() -> None:
    head, rng, asked = Head.random(100, 4, 1.0, seed=1), np.random.default_rng(0), []

    def target(ids):
        asked.append(len(ids))
        return head(ids) + 1e-4 * rng.standard_normal(len(ids))

    with pytest.raises(us.errors.ModelMismatch, match="tolerance="):
        us.recover(us.token_oracle(target, 100), Learner())
    assert sum(asked) < 200


@pytest.mark.parametrize("seed", range(3))
def test_strong_heads_stay_within_the_stated_bounds(seed) -> None:
    head = Head.random(60, 4, 30.0, seed=seed)
    model = us.recover(us.token_oracle(head), Learner()).model
    assert within_bounds(model, head)


def test_a_link_is_undone() -> None:
    head = Head.random(60, 3, 1.0, seed=1)
    oracle = us.token_oracle(lambda ids: np.tanh(head(ids)), 60, link="tanh")
    assert us.models.distance(us.recover(oracle, Learner()).model, head) < 1e-11


def test_a_given_rank_that_is_too_small_is_contradicted_without_a_fresh_query() -> None:
    head = Head.random(60, 4, 1.0, seed=1)
    with pytest.raises(us.errors.ModelMismatch, match="rank 3 does not explain") as error:
        us.recover(us.token_oracle(head), Learner(rank=3))
    assert "verify" not in error.value.recovery.usage.phases


def positional(head: Head, slope: float):
    """Scores fall with the distance to the last token; values do not depend on it."""

    def answer(ids):
        K, Q = head.scores
        scores = np.einsum("bnr,br->bn", K[ids], Q[ids[:, -1]]) - slope * np.arange(ids.shape[1])[::-1]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (weights * head.values[ids]).sum(axis=1) / weights.sum(axis=1)

    return answer


def test_positions_are_detected_and_a_fixed_arrangement_is_learned() -> None:
    head = Head.random(60, 3, 1.0, seed=1)
    oracle = us.token_oracle(positional(head, 0.5), 60)
    with pytest.raises(us.errors.ModelMismatch, match="order of tokens matters"):
        us.recover(oracle, Learner())
    recovery = us.recover(oracle, Learner(positions="fixed"))
    pairs = np.random.default_rng(0).integers(60, size=(500, 2))
    assert np.abs(recovery.model(pairs) - positional(head, 0.5)(pairs)).max() < 1e-12
    i, j = pairs[pairs[:, 0] != pairs[:, 1]].T
    assert np.abs(recovery.model.gaps(i, j) - (head.gaps(i, j) - 0.5)).max() < 1e-10
    with pytest.raises(us.errors.InvalidArgument, match="2 tokens"):
        recovery.model(np.zeros((1, 3), dtype=int))


@pytest.mark.parametrize("rank", [4, 16])
def test_positions_added_to_embeddings_shift_scores_and_values(rank) -> None:
    rng = np.random.default_rng(rank)
    E, P = rng.standard_normal((200, 16)), 0.5 * rng.standard_normal((40, 16))
    head = us.models.SingleHead.random(16, rank=rank, norm=0.6, seed=rank)

    def target(ids):
        return head(E[ids] + P[: ids.shape[1]])

    oracle = us.token_oracle(target, 200)
    with pytest.raises(us.errors.ModelMismatch, match="order of tokens matters"):
        us.recover(oracle, Learner())
    model = us.recover(oracle, Learner(positions="fixed")).model
    pairs = rng.integers(200, size=(1000, 2))
    assert np.abs(model(pairs) - target(pairs)).max() < 1e-11
    assert np.abs(model(pairs[:, :1]) - target(pairs[:, :1])).max() < 1e-13


def test_values_that_depend_on_the_position_in_another_way_are_refused() -> None:
    head = Head.random(80, 3, 1.0, seed=1)
    other = np.random.default_rng(1).standard_normal(80)

    def target(ids):
        K, Q = head.scores
        weights = np.exp(np.einsum("bnr,br->bn", K[ids], Q[ids[:, -1]]))
        values = np.where(np.arange(ids.shape[1]) > 0, other[ids], head.values[ids])
        return (weights * values).sum(axis=1) / weights.sum(axis=1)

    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.token_oracle(target, 80), Learner(positions="fixed"))


def test_bad_arguments() -> None:
    oracle = us.token_oracle(Head.random(10, 2))
    for learner in (
        Learner(rank=11),
        Learner(rank=1.5),
        Learner(positions="free"),
        Learner(embeddings=np.zeros((9, 3))),
    ):
        with pytest.raises(us.errors.InvalidArgument):
            us.recover(oracle, learner)
    with pytest.raises(us.errors.InvalidArgument, match="forbidden"):
        us.token_oracle(lambda ids: ids[:, 0], 5, forbidden=["x"])
    with pytest.raises(us.errors.InvalidArgument, match="token ids"):
        us.recover(us.token_oracle(Head.random(10, 2), kind="membership"), Learner())


@pytest.mark.parametrize("decimals", [9, 10, 11, 12, 13])
def test_many_decimals_are_noise_that_is_measured(decimals) -> None:
    target = us.models.TokenHead.random(24, 3, seed=decimals)
    recovery = us.recover(us.token_oracle(lambda ids: np.round(target(ids), decimals), 24), us.learners.TokenHead())
    ids = np.arange(24)
    gap = np.abs(recovery.model.gaps(ids[None], ids[:, None]) - target.gaps(ids[None], ids[:, None]))
    assert (gap <= recovery.model.bounds(ids[None], ids[:, None])).all()
