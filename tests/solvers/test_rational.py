"""Poles in the repetition ratio."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax.solvers.rational import poles, ratios


@pytest.mark.parametrize(("H", "error"), [(1, 1e-13), (2, 1e-10), (3, 1e-6)])
def test_poles_and_residues_of_separated_heads(H: int, error: float) -> None:
    """The error grows fast with H: interpolation is exponentially ill-conditioned."""
    rng = np.random.default_rng(H)
    t = np.linspace(-1.5, 1.5, H) if H > 1 else np.array([0.4])
    q = rng.uniform(0.5, 1.5, H) * rng.choice([-1, 1], H)
    copies = ratios(2 * H, 4 * H + 3)
    k = copies[:, 1] / copies[:, 0]
    found = poles(k, (q / (1 + k[:, None] * np.exp(-t))).sum(axis=1), H)
    assert found is not None
    assert np.abs(found.t - t).max() <= error
    assert np.abs(found.q - q).max() <= error


@pytest.mark.parametrize(("number", "longest"), [(2, 3), (6, 13), (11, 64)])
def test_ratios_are_distinct_and_short_enough(number: int, longest: int) -> None:
    copies = ratios(number, longest)
    assert len(copies) == number
    assert copies.min() >= 1
    assert copies.sum(axis=1).max() <= longest
    assert len(set(copies[:, 1] / copies[:, 0])) == number
