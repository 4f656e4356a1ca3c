"""The 1/lambda term tells which head feeds which."""

from __future__ import annotations

import numpy as np
import pytest

from tests.solvers.test_stack_newton import OUT, D, T, heads
from unsoftmax.solvers import layer_order
from unsoftmax.solvers.layer_order import Order, Size, find_order, first_order
from unsoftmax.solvers.stack_heads import Contexts
from unsoftmax.solvers.stack_models import Deep


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("networks", [False, True])
def test_layers_of_a_stack(networks, large, monkeypatch) -> None:
    if large:
        for name, value in {"_FEW": 5, "_OUTPUTS": 3, "PART": 600}.items():
            monkeypatch.setattr(layer_order, name, value)
    rng = np.random.default_rng(4)
    # Coordinates that are tokens: what a stack writes outside of them its norm would see too.
    model = Deep(heads(n=4, seed=3), (1, 2, 1), 0.1 * rng.standard_normal((3, OUT)), 1e-5, T)
    m = Size(4, D, OUT, 2, 2, networks).contexts(1.5) + 8
    q = rng.standard_normal(D)
    q *= np.sqrt(OUT) / np.linalg.norm(q)
    others = rng.standard_normal((m, 4, D))
    others *= np.sqrt(OUT) / np.linalg.norm(others, axis=2, keepdims=True)
    blank = Contexts(np.tile(q, (m, 1)), others, np.zeros((m, 4)), np.zeros((m, OUT)), np.ones(m))
    scales = np.array([1e3, 2e3, 4e3])
    y = [model.answers(Contexts(blank.q, others, blank.log_counts, blank.y, np.full(m, s))) for s in scales]
    term = first_order(y, scales)
    found = find_order(model.heads, T, blank, term, networks)
    assert found.layers() == [[0], [1, 2], [3]]
    assert found.deviation < 1e-3
    assert found.residual < 1e-3


def test_what_is_no_order_of_layers_is_said() -> None:
    circle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    assert Order(circle, 0.0).layers() is None
    assert Order(np.zeros((3, 3)), 0.0).layers() == [[0, 1, 2]]
    assert Order(np.array([[0, 0.4], [1, 0]]), 0.0).deviation == pytest.approx(0.4)


@pytest.mark.parametrize("times", [2, 3, 12])
def test_a_layer_that_is_repeated(times) -> None:
    entries = np.full((3, 3), (times - 1) / (2 * times))
    found = Order(entries + 1e-4 / times**2, 0.0)
    assert found.layers() == [[0, 1, 2]] * times
    assert (found.own, found.deviation < 1e-2) == (0, True)
    entries[0, 1] = 1
    assert Order(entries, 0.0).repeated == 1
    assert Order(entries, 0.0).own > 0.2
