"""Targets that round more than the reference's weights explain are the same, and changes still show in them."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax as us
from tests.comparing.projected import layer, projections, served


@pytest.mark.parametrize("seed", range(4))
def test_biases_that_the_reference_does_not_hold_are_no_change(seed: int) -> None:
    p = projections(seed)
    result = us.compare(served(p), layer(p), seed=seed)
    assert (result.verdict, result.differs) == ("same", False)
    assert result.p_value > 1e-3
    assert result.usage.phases["repeats"] > 0
    assert any("new on nearby questions" in note for note in result.notes)


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_change_grows_with_the_rounding_seen_and_shows(seed: int) -> None:
    p, plain = projections(seed), projections(seed, 0.0)
    reference = layer(p)
    size = us.compare(served(p), reference, seed=seed).detectable
    least = us.compare(served(plain), layer(plain), seed=seed).detectable
    assert 1.2 * least < size < 30 * least
    change = np.random.default_rng(seed).standard_normal(p["Wq"].shape)
    moved = np.linalg.norm(layer(p | {"Wq": p["Wq"] + 1e-2 * change}).W - reference.W) / np.linalg.norm(reference.W)
    target = served(p | {"Wq": (p["Wq"] + 1e-2 * change * 3 * size / moved).astype(np.float32)})
    assert us.compare(target, reference, seed=seed, explain=False).differs


def test_a_budget_that_ends_while_a_difference_is_held_again_leaves_it_undecided() -> None:
    p = projections(0)
    asked = us.compare(served(p), layer(p)).usage.phases["detect"]
    assert us.compare(served(p), layer(p), budget=asked + 10).verdict == "undecided"


@pytest.mark.parametrize("seed", range(3))
def test_a_module_is_computed_in_the_target_s_arithmetic(seed: int) -> None:
    """Its float64 answers show no rounding: that of its biases had been taken for a change."""
    torch = pytest.importorskip("torch")
    p = projections(seed, 100.0)
    module = torch.nn.MultiheadAttention(24, 2, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.from_numpy(np.concatenate([p["Wq"], p["Wk"], p["Wv"]])))
        module.in_proj_bias.copy_(torch.from_numpy(np.concatenate([p["bq"], p["bk"], p["bv"]])))
        module.out_proj.weight.copy_(torch.from_numpy(p["Wo"]))
        module.out_proj.bias.copy_(torch.from_numpy(p["bo"]))
    result = us.compare(served(p), module, seed=seed, explain=False)
    assert result.verdict == "same"
    assert set(result.usage.phases) == {"detect"}
