"""Models whose last digits are another processor's, and what a verification asks of them.

Processors differ by 1e-16 to 1e-12, so that hardly a token is rounded otherwise: too few to hope for in a test. Here a
model is off by so much that every token made of it would be another one, and what counts as near is as much wider.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax import verify
from unsoftmax.oracles import Ledger
from unsoftmax.oracles.stack import Stack
from unsoftmax.run.engine import run

OFF = 2.0**-30
"""Relative change of every number of a model: a sixtieth of a unit of float32, for thousands of entries."""

WIDE = 2.0**-20
"""What counts as near instead of 2^-36: farther apart than tokens made of such a model are."""


def shaken(model: Any, rng: np.random.Generator) -> Any:
    """The model, or a part of it, with other last digits; powers of two have none."""
    if isinstance(model, float) or (isinstance(model, np.ndarray) and model.dtype.kind == "f"):
        held = np.asarray(model)
        other = np.where(np.abs(np.frexp(held)[0]) == 0.5, held, held * (1 + OFF * rng.standard_normal(held.shape)))
        return float(other) if isinstance(model, float) else other.astype(held.dtype)
    if isinstance(model, (list, tuple)) and any(map(is_dataclass, model)):
        return type(model)(shaken(part, rng) for part in model)
    if is_dataclass(model) and not isinstance(model, type):
        held = {field.name: getattr(model, field.name) for field in fields(model) if field.init}
        return replace(model, **{name: shaken(value, rng) for name, value in held.items()})
    return model


def paid_again(model: Any, oracle: Any, place: Path, seed: int) -> tuple[int, int]:
    """Queries of verifying a model, and those that are paid again where the ledger is resumed with other digits.

    `settling.UNDECIDED` is to be `WIDE`.
    """
    other = shaken(model, np.random.default_rng(seed))
    billed = []
    for each in (model, other):
        with Ledger(place) as ledger:
            stack = Stack(oracle, store=ledger)
            assert stack.near is not None
            stack.near.limit = WIDE
            stack.rewind()
            run(verify.check(each, oracle.spec, seed), stack)
            billed.append(stack.meter.billed)
    return billed[0], billed[1]
