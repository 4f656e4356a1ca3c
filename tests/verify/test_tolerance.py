"""A declared tolerance that no v can keep is told; a true one never is."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.inversion import Noise
from unsoftmax.verify.precision import least_share


@pytest.mark.parametrize("dim", [1, 3, 8])
@pytest.mark.parametrize("times", [1.0, 4.0])
def test_the_least_share_finds_answers_beyond_the_tolerance(dim, times):
    for seed in range(10):
        rng = np.random.default_rng([seed, dim])
        v, tokens = rng.standard_normal(dim), rng.standard_normal((16, dim))
        read = v + times * 1e-3 * rng.choice([-1, 1], dim)
        y = tokens @ v + times * 1e-3 * rng.choice([-1, 1], 16)
        share = least_share(read, np.sqrt(dim) * 1e-3, tokens, y, Noise(1e-3, 1e-15))
        assert (share <= 1 + 1e-6) if times == 1 else (share > 1)


def test_nothing_is_said_of_measured_noise():
    v = np.ones(2)
    assert least_share(v, 0.1, np.eye(2), v, Noise(0.1, 0.0, measured=True)) is None
