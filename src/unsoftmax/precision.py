"""What float64 holds: numbers that every room measures rounding by."""

from __future__ import annotations

EPS = 2.0**-52
"""Distance of 1 from the next number of float64."""

UNIT = EPS / 2
"""Half a unit in the last place of float64: the largest relative error of one rounding."""

HALF_DIGITS = 1e-8
"""Relative gap that leaves half of the digits of float64: what a number read through a square, or through one
ill-conditioned step, may be off and still be the same; coarser answers have units of their own noise instead."""

ARITHMETIC = 1e-13
"""Relative gap that arithmetic in float64 leaves at most: some 500 units, more than sums over thousands of entries."""

SHORT_FORMAT = 1e-12
"""Relative rounding, or noise, from which on answers are not of float64 but of a shorter format: 4,500 of its units,
which sums inside a target stay below, and a hundred thousandth of float32's."""
