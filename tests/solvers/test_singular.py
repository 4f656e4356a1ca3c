"""Singular values where LAPACK's divide and conquer gives up."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.singular import svd


def given_up(*_args, **_rest):
    raise np.linalg.LinAlgError("SVD did not converge")


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (3, 4, 6)])
@pytest.mark.parametrize("full", [False, True])
def test_the_other_way_gives_the_same(shape, full, monkeypatch):
    M = np.random.default_rng(0).standard_normal(shape)
    wanted = svd(M, full_matrices=full)
    monkeypatch.setattr(np.linalg, "svd", given_up)
    found = svd(M, full_matrices=full)
    assert [part.shape for part in found] == [part.shape for part in wanted]
    assert np.allclose(found[1], wanted[1], rtol=1e-13)
    k = min(shape[-2:])
    assert np.allclose(found[0][..., :k] * found[1][..., None, :] @ found[2][..., :k, :], M, atol=1e-13)


def test_what_is_not_finite_is_refused_all_the_same(monkeypatch):
    monkeypatch.setattr(np.linalg, "svd", given_up)
    with pytest.raises(np.linalg.LinAlgError):
        svd(np.full((3, 3), np.nan))
