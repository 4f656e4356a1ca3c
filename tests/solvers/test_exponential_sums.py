"""Exponents of a sum of exponentials from a table of its values."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.exponential_sums import frequencies


def table(a, b, shifts, columns, slices):
    rows = np.vstack([np.zeros(a.shape[1]), shifts])
    q = rows[:, None, None] + columns[None, :, None] + slices[None, None]
    return np.exp(q @ a.T) @ b


@pytest.mark.parametrize("always_complex", [False, True], ids=["as installed", "as from NumPy 2.5 on"])
def test_exponents_are_read_from_eigenvectors(always_complex, monkeypatch):
    """Newer versions return complex arrays even where nothing is complex."""
    rng = np.random.default_rng(0)
    eig = np.linalg.eig
    if always_complex:
        monkeypatch.setattr(np.linalg, "eig", lambda M: tuple(part.astype(complex) for part in eig(M)))
    a, shifts = rng.standard_normal((2, 4)), np.eye(4)
    G = table(a, np.array([0.3, 0.4]), shifts, rng.standard_normal((3, 4)), np.vstack([np.zeros(4), np.ones(4)]))
    found = frequencies(G, shifts, 2)
    assert found is not None
    assert np.allclose(found[np.argsort(found[:, 0])], a[np.argsort(a[:, 0])], atol=1e-9)


def test_waves_are_no_exponentials():
    rng = np.random.default_rng(1)
    rows, columns, slices = np.eye(3), rng.standard_normal((3, 3)), np.vstack([np.zeros(3), np.ones(3)])
    q = np.vstack([np.zeros(3), rows])[:, None, None] + columns[None, :, None] + slices[None, None]
    assert frequencies(1.2 + np.sin(2 * q @ np.array([1.0, 0.5, -0.4])), rows, 3) is None
