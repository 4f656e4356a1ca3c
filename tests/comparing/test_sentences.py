"""What a comparison says of a trained layer's change is true of it: which heads, which weights, and how much."""

from __future__ import annotations

import re

import numpy as np
import pytest

import unsoftmax as us
from tests.comparing.projected import Projections, layer, projections, served

DIM, HEADS, ROWS = 40, 4, 10
"""Width of tokens, number of heads, rows of one: too large for every array to be fitted."""


def entry(p: Projections, size: float, at: tuple[int, int] = (5, 7)) -> Projections:
    """The same with one entry of Q changed."""
    Wq = np.array(p["Wq"], dtype=float)
    Wq[at] += size
    return p | {"Wq": Wq}


@pytest.mark.parametrize("seed", range(3))
def test_a_head_that_took_over_another_s_scores_is_said_to_have_other_scores(seed: int) -> None:
    """Its key directions are among the reference's: across these nothing of the change shows."""
    p = projections(seed, 1.0, DIM)
    took = p | {name: np.array(p[name]) for name in ("Wq", "Wk")}
    for name in ("Wq", "Wk"):
        took[name][:ROWS] = p[name][ROWS : 2 * ROWS]
    reference, target = layer(p, HEADS), layer(took, HEADS)
    result = us.compare(us.oracle(target), reference)
    assert result.verdict == "dense"
    assert result.heads == (0,)
    assert "The scores of 1 of 4 heads" in result.sentence
    assert "key offsets c of 1 of 4 heads" in result.sentence
    size = np.linalg.norm(target.W[0] - reference.W[0]) / np.linalg.norm(reference.W[0])
    said = result.evidence["scores"]["0"]
    assert said["low"] * (1 - 1e-6) <= size <= said["high"] * (1 + 1e-6)
    assert said["relative"] == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_rounding_of_value_biases_is_no_changed_constant(seed: int) -> None:
    p = projections(seed, 30.0, DIM)
    result = us.compare(served(entry(p, 1e-3), HEADS, "float64"), layer(p, HEADS))
    assert "constant" not in result.sentence
    assert (result.verdict, result.rank, result.heads) == ("low rank", 1, (0,))


@pytest.mark.parametrize("bias", [0.3, 3.0])
def test_a_change_near_rounding_is_no_scale(bias: float) -> None:
    """Factors of a few heads and a shift come near anything that is near rounding; nearby questions tell."""
    p = projections(1, bias, DIM)
    reference = layer(p, HEADS)
    size = us.compare(served(p, HEADS), reference, seed=1).detectable
    moved = np.linalg.norm(layer(entry(p, 1.0), HEADS).W - reference.W) / np.linalg.norm(reference.W)
    result = us.compare(served(entry(p, 0.7 * size / moved), HEADS), reference, seed=1)
    assert result.differs
    assert result.verdict != "scale"


def test_a_scale_near_rounding_is_still_one_and_is_written_out() -> None:
    model = us.models.MultiHead.random(16, 3, norm=2.0, seed=0).astype("float32")
    target = us.models.MultiHead(model.W, model.v * (1 + 4e-6)).astype("float32")
    result = us.compare(us.oracle(target, dtype="float32"), model)
    assert result.verdict == "scale"
    written = re.search(r"scaled by 1 \+ (\S+);", result.sentence)
    assert written is not None
    # Float32 leaves 1e-7 of every answer, of which some forty were asked.
    assert abs(float(written[1]) - 4e-6) < 4e-7
    assert "repeats" in result.usage.phases


@pytest.mark.parametrize("seed", range(2))
def test_errors_of_the_numbers_found_are_allowed_for(seed: int) -> None:
    """Of rank one to a billionth, but a hundred times what rounding leaves where some dimensions stand out: it had been
    called dense."""
    p = projections(seed, 0.0, 96)
    for name in ("Wq", "Wk", "Wv"):
        p[name] *= 0.1
        p[name][:, :4] *= 60
    result = us.compare(us.oracle(layer(entry(p, 1e-2), HEADS)), layer(p, HEADS))
    assert (result.verdict, result.rank, result.evidence["matrix"]) == ("low rank", 1, "Q")
    assert result.heads == (0,)
