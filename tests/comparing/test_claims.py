"""No wrong explanation with a confident face: random models, changed in one to three places, or replaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax as us
from tests.comparing.changes import dense, entry, explains, low_rank

RANDOM: dict[str, Any] = {
    "single head": lambda d, H, s: us.models.SingleHead.random(d, norm=2.0, seed=s),
    "low rank": lambda d, H, s: us.models.LowRankHead.random(d, 2, seed=s),
    "heads": lambda d, H, s: us.models.MultiHead.random(d, H, norm=2.0, seed=s),
    "layer": lambda d, H, s: us.models.AttentionLayer.random(d, min(H, 2), scale=2.0, seed=s),
    "layer behind a norm": lambda d, H, s: us.models.AttentionLayer.random(
        d, 2, norm=("pre", "post")[s % 2], residual=True, scale=2.0, seed=s
    ),
    "transformer": lambda d, H, s: us.models.Transformer.random(d, d + 2, seed=s),
}
SCORES = ("W", "K", "Q", "c")


def drawn(family: str, seed: int) -> tuple[Any, Any, set[str]]:
    """Reference, target, and the arrays that were changed: sizes from 1e-9 to 1 of theirs."""
    rng = np.random.default_rng([seed, 77])
    d, H = int(rng.choice([6, 8, 10])), int(rng.integers(1, 4))
    model = RANDOM[family](d, H, seed)
    count = int(rng.choice([0, 1, 1, 2, 2, 3]))
    if count == 0:
        return model, RANDOM[family](d, H, seed + 5000), {"all"}
    weights = {name: np.array(a) for name, a in model.parameters().items()}
    names = [name for name, a in weights.items() if a.dtype.kind == "f" and a.size > 1]
    changed = set()
    for i in range(count):
        name = str(rng.choice(names))
        kind = (dense, low_rank, entry)[int(rng.integers(3))]
        weights[name] = weights[name] + kind(weights[name], 10.0 ** rng.uniform(-9, 0), [seed, i])
        changed.add(name)
    return model, type(model).from_parameters(weights), changed


def held(family: str, seed: int, dtype: str) -> None:
    model, target, changed = drawn(family, seed)
    served = us.oracle(target.astype(dtype), dtype=dtype)
    result = us.compare(served, model, seed=seed)
    said = f"{family} {seed} {dtype} {changed}: {result}"
    exact = dtype == "float64"
    assert result.differs is not False or not exact, said
    if result.changes or (result.delta is not None and "W" in model.parameters()):
        if "(either would do)" not in result.sentence:
            assert explains(result, model, target, 1e-4 if exact else 0.3), said
    elif result.verdict in ("sparse", "low rank"):
        assert "or" in result.evidence.get("matrix", "") or result.delta is not None, said
    if result.delta is not None and exact:
        true = np.asarray(target.W) - np.asarray(model.W)
        floor = 1e-13 * np.linalg.norm(model.W)
        assert np.linalg.norm(result.delta - true.reshape(result.delta.shape)) <= 1e-3 * np.linalg.norm(true) + floor, (
            said
        )
    if result.verdict == "values" and exact:
        assert not changed & set(SCORES), said


@pytest.mark.parametrize("family", RANDOM)
def test_what_is_claimed_explains_the_target(family: str) -> None:
    for seed in range(6):
        held(family, seed, "float64")
    held(family, 11, "float32")


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("family", RANDOM)
def test_what_is_claimed_explains_hundreds_of_targets(family: str, dtype: str) -> None:
    for seed in range(100, 160):
        held(family, seed, dtype)
