"""How the answers of a run are written, where that is coarser than what was declared of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.inversion import FORMAT_SHOWS, decimal_error, printed_error, rounding_unit, shown_rounding
from unsoftmax.learners.approximate import Approximate
from unsoftmax.learners.core.base import Learner
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

_COARSER = 10.0
"""Rounding beside that of the declared format from which on answers are coarser: sums inside a target lose as much."""

_FEWEST = 5e-11
"""Relative rounding from which on digits are few, eleven of them: large answers of some decimals have more."""

_HELD = 1.01
"""Decimals over the tolerance that declares them, in their last digits: what is rounded to as many is no coarser."""

_BELOW_BFLOAT16 = np.uint32(0xFFFF)
"""Bits of float32 that bfloat16 does not have."""

_BFLOAT16 = 2.0**-8
"""Rounding unit of bfloat16."""

_WIDEST = 1e100
"""Size of answers, to the longest tokens, from which on they have no decimals, and scaling them could overflow."""


@dataclass(frozen=True)
class Written:
    """What is the matter, what to do about it, and how far answers are off, as a share of a typical one."""

    reason: str
    advice: str
    error: float


def written(answers: Array, spec: OracleSpec, noisy: Learner) -> Written | None:
    """The format that answers (n,) show, None where it is as fine as declared; `noisy`: who learns from noisy ones."""
    y = answers[np.isfinite(answers) & (np.abs(answers) < _WIDEST) & (answers != 0)]
    if spec.link is not None or spec.kind == "membership" or len(np.unique(y)) < FORMAT_SHOWS:
        return None
    size = float(np.median(np.abs(y)))
    unit, decimals, relative = rounding_unit(y), decimal_error(y), shown_rounding(y)[1]
    more = "give answers with more digits"
    if isinstance(noisy, Approximate):
        more += ", or use learners.Approximate"
    if unit > _COARSER * spec.eps:
        name = next(name for name in ("float16", "float32") if unit == np.finfo(name).eps)
        if not (y.astype(np.float32).view(np.uint32) & _BELOW_BFLOAT16).any():
            return Written("the answers are bfloat16 numbers", more, _BFLOAT16)
        return Written(f"the answers are {name} numbers, and were not declared so", f'declare dtype="{name}"', unit)
    if decimals > _HELD * spec.tolerance and printed_error(y) == decimals:
        return Written(
            f"the answers are rounded to {round(-math.log10(2 * decimals))} decimals, right within {decimals:g} only, "
            "and were not declared so",
            f"declare tolerance={decimals:g} on the oracle",
            decimals / size,
        )
    if relative > max(_FEWEST, _COARSER * spec.eps) and relative * size > spec.tolerance:
        return Written(
            f"the answers are written with {round(1 - math.log10(2 * relative))} digits only", more, relative
        )
    return None
