"""Ranks of matrices behind noise."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.star import gap_rank


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_rank_is_where_the_spectrum_falls_to_what_may_be_noise(rank) -> None:
    rng = np.random.default_rng(rank)
    left, right = (np.linalg.qr(rng.standard_normal((5, 8, 8)))[0] for _ in range(2))
    sizes = np.where(np.arange(8) < rank, np.geomspace(1, 0.3, 8), 0)
    noisy = left * sizes @ right + 5e-3 * rng.standard_normal((5, 8, 8))
    noisy[0] = np.outer(left[0, 0], right[0, 0])  # one that was read badly
    assert gap_rank(noisy) == rank
