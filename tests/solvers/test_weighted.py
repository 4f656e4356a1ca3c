"""Least squares of equations that are known differently well."""

from __future__ import annotations

import numpy as np

from unsoftmax.solvers.weighted import weighted


def test_a_few_bad_equations_spoil_no_unknown():
    off = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A, x = rng.standard_normal((12, 5)), rng.standard_normal(5)
        errors = np.where(np.arange(12) % 3, 1.0, 1e9)
        found = weighted(A, A @ x + 1e-14 * errors * rng.standard_normal(12), errors)
        off.append(np.linalg.norm(found.x - x) / (1e-14 * found.error))
    assert 0.3 < np.sqrt(np.mean(np.square(off))) < 3
    assert found.error < 100
