"""Proposition C.2 and the subspaces found from Hessians."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us


def orthogonal(d: int, dims: list[int], seed: int) -> tuple[us.models.MultiHead, list[np.ndarray]]:
    """Heads inside consecutive blocks of a random orthonormal basis."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    bases = np.split(Q[:, : sum(dims)], np.cumsum(dims)[:-1], axis=1)
    W = [U @ rng.standard_normal((U.shape[1],) * 2) @ U.T for U in bases]
    v = [U @ rng.standard_normal(U.shape[1]) for U in bases]
    return us.models.MultiHead(np.array(W), np.array(v)), bases


def test_known_subspaces_cost_what_the_proposition_says() -> None:
    target, bases = orthogonal(12, [3, 4, 5], 1)
    recovery = us.recover(us.oracle(target), us.learners.OrthogonalHeads(bases))
    assert us.models.distance(recovery.model, target) <= 1e-12
    spent = recovery.usage.phases["values"] + recovery.usage.phases["main"]
    assert spent == us.theory.orthogonal_heads_queries([3, 4, 5])


@pytest.mark.parametrize(("d", "dims"), [(32, [8, 8, 8, 8]), (12, [1, 4, 5]), (6, [6])])
def test_unknown_subspaces_are_found(d: int, dims: list[int]) -> None:
    for seed in range(3):
        target, _ = orthogonal(d, dims, seed)
        recovery = us.recover(us.oracle(target), us.learners.OrthogonalHeads(), seed=seed)
        assert us.models.distance(recovery.model, target) <= 1e-7
        (parted,) = [c for c in recovery.certificate.claims if c.name == "subspaces part"]
        assert parted.observed <= 1e-6 * parted.bound


def test_heads_that_share_a_subspace_are_refused() -> None:
    with pytest.raises(us.errors.ModelMismatch):
        us.recover(us.oracle(us.models.MultiHead.random(6, 2, norm=2.0, seed=1)), us.learners.OrthogonalHeads())


def test_a_subspace_without_value_is_dropped_and_said() -> None:
    target, bases = orthogonal(6, [3, 3], 2)
    silent = us.models.MultiHead(target.W, target.v * np.array([[1.0], [0.0]]))
    recovery = us.recover(us.oracle(silent), us.learners.OrthogonalHeads(bases))
    assert recovery.model.heads == 1
    assert any("subspace 2" in note for note in recovery.notes)
    assert us.models.equivalent(recovery.model, silent, 1e-9)


def test_bases_must_be_orthonormal_and_orthogonal() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="orthogonal to each other"):
        us.learners.OrthogonalHeads([np.eye(4)[:, :2], np.eye(4)[:, 1:3]]).forecast(us.oracles.OracleSpec(4))
    with pytest.raises(us.errors.InvalidArgument, match="shape"):
        us.learners.OrthogonalHeads([np.eye(3)]).forecast(us.oracles.OracleSpec(4))


@pytest.mark.parametrize("bases", [[], [np.full((4, 2), np.nan)]])
def test_empty_or_undefined_bases_cost_nothing(bases) -> None:
    asked = []
    target = us.oracle(lambda X: asked.append(len(X)) or X[:, 0, 0], 4)
    with pytest.raises(us.errors.InvalidArgument):
        us.recover(target, us.learners.OrthogonalHeads(bases))
    assert not asked


@pytest.mark.parametrize("known", [True, False])
def test_a_head_that_attends_to_all_tokens_alike(known: bool) -> None:
    """W = 0 shows in no Hessian: its value is what single tokens answer outside the subspaces found."""
    rng = np.random.default_rng(3)
    bases = np.split(np.linalg.qr(rng.standard_normal((7, 7)))[0], [3], axis=1)
    W = np.stack([bases[0] @ rng.standard_normal((3, 3)) @ bases[0].T, np.zeros((7, 7))])
    target = us.models.MultiHead(W, np.stack([U @ rng.standard_normal(U.shape[1]) for U in bases]))
    recovery = us.recover(us.oracle(target), us.learners.OrthogonalHeads(bases if known else None), seed=1)
    assert us.models.distance(recovery.model, target) <= 1e-9


@pytest.mark.parametrize(("tolerance", "dtype", "error"), [(1e-6, "float64", 1e-9), (0.0, "float32", 1e-4)])
@pytest.mark.parametrize("known", [True, False])
def test_approximate_and_coarse_answers(tolerance: float, dtype: str, error: float, known: bool) -> None:
    rng = np.random.default_rng(4)
    bases = np.split(np.linalg.qr(rng.standard_normal((8, 8)))[0], [4], axis=1)
    W = np.stack([U @ rng.standard_normal((4, 4)) @ U.T for U in bases])
    target = us.models.MultiHead(W, np.stack([U @ rng.standard_normal(4) for U in bases]))
    oracle = us.oracle(target.astype(dtype), 8, dtype=dtype)
    oracle = us.oracles.Perturbed(oracle, tolerance) if tolerance else oracle
    recovery = us.recover(oracle, us.learners.OrthogonalHeads(bases if known else None), seed=1)
    assert us.models.distance(recovery.model, target) <= error


def test_blocks_alike_are_parted_by_hessians_at_other_points() -> None:
    """The same W and v in both subspaces: one combination of Hessians may have equal eigenvalues, several do not."""
    rng = np.random.default_rng(5)
    bases = np.split(np.linalg.qr(rng.standard_normal((8, 8)))[0], [4], axis=1)
    M, x = rng.standard_normal((4, 4)), rng.standard_normal(4)
    target = us.models.MultiHead(np.stack([U @ (M + M.T) @ U.T for U in bases]), np.stack([U @ x for U in bases]))
    recovery = us.recover(us.oracle(target), us.learners.OrthogonalHeads(), seed=1)
    assert us.models.distance(recovery.model, target) <= 1e-9
