"""Steps of the small systems behind the bound directions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from unsoftmax.learners.heads.isolation import independence
from unsoftmax.learners.heads.three_tokens import _newton_step


def test_a_value_of_zero_depends_on_all_others() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert independence(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])) == 0
        assert independence(np.array([[1.0, 0.0], [np.inf, 0.0]])) == 0


@pytest.mark.parametrize("small", [0.0, 1e-310, 1e-305])
def test_a_singular_system_has_a_short_step_and_no_warning(small) -> None:
    J = np.array([[1.0, 0.0], [0.0, small]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = _newton_step(J, np.array([1.0, 1.0]))
        assert step is not None
        assert np.allclose(step, [1.0, 0.0])
        assert np.isfinite(step * 1e150).all()


def test_a_system_without_finite_numbers_has_no_step() -> None:
    assert _newton_step(np.array([[np.nan]]), np.ones(1)) is None
    assert _newton_step(np.ones((1, 1)), np.array([np.inf])) is None
