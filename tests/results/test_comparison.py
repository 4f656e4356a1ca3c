"""A saved comparison reads back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unsoftmax as us
from unsoftmax.results.recovery import Usage


def example() -> us.Comparison:
    return us.Comparison(
        verdict="low rank",
        sentence="The scores of head 1 changed by rank 1.",
        p_value=1e-30,
        e_value=1e20,
        detectable=1e-14,
        usage=Usage(asked=60, billed=60, phases={"detect": 52}),
        heads=(1,),
        delta=np.arange(8.0).reshape(2, 2, 2),
        rank=1,
        evidence={"arithmetic": "float64"},
        notes=("a note.",),
        provenance={"seed": 0},
    )


def test_saving_and_loading_keeps_everything(tmp_path: Path) -> None:
    kept = example()
    kept.save(tmp_path / "result.safetensors")
    read = us.load(tmp_path / "result.safetensors")
    assert isinstance(read, us.Comparison)
    assert np.array_equal(read.delta, kept.delta)
    assert read.facts() == kept.facts()
    assert read.differs is True


def test_infinite_numbers_survive(tmp_path: Path) -> None:
    replace(example(), e_value=np.inf, delta=None).save(tmp_path / "result.safetensors")
    read = us.load(tmp_path / "result.safetensors")
    assert read.e_value == np.inf
    assert read.delta is None


def test_a_damaged_header_is_a_typed_error(tmp_path: Path) -> None:
    from unsoftmax.models.base import write_safetensors
    from unsoftmax.results.comparison import COMPARISON_FORMAT

    header = json.dumps(example().facts() | {"verdict": "perhaps"})
    write_safetensors(
        tmp_path / "x.safetensors", {"_": np.zeros(0)}, {"format": COMPARISON_FORMAT, "comparison": header}
    )
    with pytest.raises(us.errors.FileFormatError):
        us.load(tmp_path / "x.safetensors")


def test_differs_has_three_values() -> None:
    kept = example()
    assert replace(kept, verdict="same").differs is False
    assert replace(kept, verdict="undecided").differs is None
    assert "low rank" in repr(kept)
