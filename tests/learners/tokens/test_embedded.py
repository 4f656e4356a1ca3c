"""Known embeddings: W on their span, and what lies outside is said."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us

RNG = np.random.default_rng(0)
E = RNG.standard_normal((200, 12))


def recovered(embeddings, head, **options) -> us.Recovery:
    oracle = us.token_oracle(lambda ids: head(embeddings[ids]), len(embeddings))
    return us.recover(oracle, us.learners.TokenHead(embeddings=embeddings, **options))


def test_full_rank() -> None:
    head = us.models.SingleHead.random(12, norm=1.0, seed=1)
    recovery = recovered(E, head)
    assert isinstance(recovery.model, us.models.SingleHead)
    assert us.models.distance(recovery.model, head) < 1e-11
    assert recovery.usage.phases["values"] + recovery.usage.phases["main"] < 2.2 * us.theory.single_head_unknowns(12)


@pytest.mark.parametrize("rank", [None, 3])
def test_low_rank(rank) -> None:
    head = us.models.LowRankHead.random(12, 3, norm=1.0, seed=1)
    recovery = recovered(E, head, rank=rank)
    assert isinstance(recovery.model, us.models.LowRankHead)
    assert recovery.model.rank == 3
    assert us.models.distance(recovery.model, head) < 1e-12


def test_key_offset_and_constant_are_found_only_where_they_are() -> None:
    plain = us.models.SingleHead.random(12, norm=1.0, seed=1)
    head = us.models.SingleHead(plain.W, plain.v, c=np.linspace(-1, 1, 12), constant=0.5)
    assert us.models.distance(recovered(E, head).model, head) < 1e-11
    model = recovered(E, plain).model
    assert model.c is None
    assert model.constant == 0.0


def test_outside_the_span_nothing_is_claimed() -> None:
    basis = np.linalg.qr(RNG.standard_normal((12, 7)))[0]
    flat = RNG.standard_normal((200, 7)) @ basis.T
    head = us.models.SingleHead.random(12, norm=1.0, seed=1)
    recovery = recovered(flat, head)
    P = basis @ basis.T
    assert np.abs(recovery.model.W - P @ head.W @ P).max() < 1e-11
    assert np.abs(recovery.model.v - P @ head.v).max() < 1e-12
    assert any("span 7 of 12" in note and "not identifiable" in note for note in recovery.notes)


def test_fewer_tokens_than_dimensions() -> None:
    head = us.models.SingleHead.random(12, norm=1.0, seed=1)
    recovery = recovered(E[:5], head)
    differences = E[:5] - E[:5].mean(axis=0)
    left, right = np.linalg.pinv(differences) @ differences, np.linalg.pinv(E[:5]) @ E[:5]
    assert np.abs(recovery.model.W - left @ head.W @ right).max() < 1e-11
    assert any("equal for all keys is not identifiable" in note for note in recovery.notes)


def test_wrong_embeddings_are_contradicted() -> None:
    head = us.models.SingleHead.random(12, norm=1.0, seed=1)
    other = RNG.standard_normal((200, 12))
    oracle = us.token_oracle(lambda ids: head(other[ids]), 200)
    with pytest.raises(us.errors.ModelMismatch, match="do not explain"):
        us.recover(oracle, us.learners.TokenHead(embeddings=E))


def test_the_result_can_be_saved_and_answers_on_ids_again(tmp_path) -> None:
    head = us.models.LowRankHead.random(12, 3, norm=1.0, seed=1)
    recovered(E, head).save(tmp_path / "run")
    model = us.models.load(tmp_path / "run")
    ids = RNG.integers(200, size=(50, 6))
    assert np.abs(model(ids) - head(E[ids])).max() < 1e-11


def test_too_strong_to_read_is_refused_not_guessed() -> None:
    head = us.models.SingleHead.random(12, norm=40.0, seed=1)
    with pytest.raises(us.errors.NotIdentifiable):
        recovered(E, head)
