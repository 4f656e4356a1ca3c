"""What counts as noise, by what the answers hold: all digits of float64, or fewer.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """One set for exact answers, one for rounded ones, in which keys and features are known to a digit or less."""

    linear: float
    """Relative misfit of keys that are linear in the tokens: what differences leave of their digits."""

    fitted: float
    """Relative misfit of features behind norms: layers of this class leave 1e-9 in exact answers, others a share."""

    bend: float
    """Bend of log weights along a token, relative to their spread; a cap or a norm that bends less is not told from
    none."""

    slope: float
    """Part of the logs that a slope per step may leave unexplained; rotations leave far more."""

    fewer: float
    """Least singular value of a Jacobian, over the largest, below which its directions show fewer heads than there are:
    differences of exact answers are known to 1e-6, of rounded ones to 1e-3 or so."""

    new: float
    """Part of P_h x outside the span of earlier ones that makes a new dimension."""

    readable: float
    """Least weight that is told well enough: four digits are lost in exact answers there, and rounded ones have fewer
    to lose. Below it the query tokens are shortened."""

    same_keys: float
    """Angle, in radians, between the key spaces of two heads below which they share keys; the noise of rounded answers
    tilts the spaces found: it trades heads that share keys unseen against heads that only nearly do."""

    still: float
    """Turn per step, in radians, below which a pair does not turn at all."""

    ladder: float
    """Gap up to which frequencies are taken for one of the usual ladders."""

    off_circle: float
    """Distance of an eigenvalue's modulus from 1, that of rotations, beyond which one step is no rotation."""

    apart: float
    """Gap of the frequencies of two groups of heads, in radians, beyond which they do not share their rotations."""

    shared_values: float
    """Relative gap of two heads' value maps below which they are one."""


EXACT = Limits(
    linear=1e-5, fitted=1e-4, bend=1e-6, slope=1e-7, fewer=3e-5, new=1e-7,
    readable=1e-4, same_keys=1e-3, still=1e-6, ladder=1e-5, off_circle=1e-3,
    apart=1e-3, shared_values=1e-6,
)  # fmt: skip
"""For answers that carry the digits of float64."""

ROUNDED = Limits(
    linear=0.3, fitted=0.3, bend=3e-2, slope=1e-2, fewer=3e-3, new=2e-2,
    readable=1e-2, same_keys=0.5, still=1e-4, ladder=1e-2, off_circle=0.3,
    apart=0.2, shared_values=0.2,
)  # fmt: skip
"""For all others."""
