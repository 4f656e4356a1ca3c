"""Why no kernel of one score explains a target: a few more sequences that name what it is.

A weight that is a function of the score x'Wq alone is the same for [c x ; q / c], whatever c is. One head, whatever its
weights, answers nothing to a token across v beside a query token without values; several heads do.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", refusals.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.spec import OracleSpec

_LENGTHS = (2.0**26, 2.0**7)
"""Lengths of tokens beside the query token, as far as the domain allows: at the longer what the query token answers is
nothing, at the shorter 1e-4, and temperatures that grow with the token still leave scores."""

_SIZES = 2.0 ** np.arange(-9.0, 2.0, 2.0)
"""Scores over |W| that are tried, up to 2: of heads with |W| up to 300 none leaves the numbers of float64."""

_STRETCH = (1.0, 8.0, 64.0)
"""c of [c x ; q / c]."""

_OFF = 1e-5
"""Share of an answer by which it may change, or be answered across v, beside what the query token adds: targets of
another class that were tried change by 1e-3 or more."""

_ROUNDED = 1e4
"""The same in units of rounding, where that is more: a target in float32 may leave hundreds of them."""

_SILENT = 2.0**-52
"""Score over |W| of a query token that shows no score."""


def named(spec: OracleSpec, rng: np.random.Generator) -> Asking[str | None]:
    """What the target is, in words; None if these sequences do not show it."""
    d = spec.dim
    x, q = sphere(rng, (2, d))
    longest = 0.1 * spec.domain.norm_limit / _STRETCH[-1]
    far, near = (min(length, longest) for length in _LENGTHS)
    # Tokens without a score show v, in front of equal weights.
    v = (yield Probes(_pairs(np.eye(d) * far, _SILENT / far * q), phase="outside")) / far
    size = float(np.linalg.norm(v))
    allowed = max(_OFF, _ROUNDED * max(rounding_unit(v * far), spec.eps)) + spec.tolerance / max(near * size, 1e-300)
    if size * near <= 1e3 * spec.tolerance:
        return None
    stretch = np.repeat(_STRETCH, len(_SIZES))[:, None]
    sizes = np.tile(_SIZES, len(_STRETCH))[:, None]
    for length in (far, near):
        y = yield Probes(_pairs(stretch * length * x, sizes / (stretch * length) * q), phase="outside")
        y = (y / stretch[:, 0]).reshape(len(_STRETCH), -1) / (length * size)
        both = yield Probes(_pairs(np.array([[length], [-length]]) * x, _SILENT / length * q), phase="outside")
        off = np.abs(y[1:] - y[0]) - 2 * _SIZES / length**2
        if float(off.max()) > allowed or abs(float(both.sum())) > allowed * length * size:
            return "the kernel depends on the token beyond its score x'Wq, or something is added to the head"
    across = sphere(rng, (d,))
    across -= (across @ v) * v / size**2
    across *= far / max(float(np.linalg.norm(across)), 1e-300)
    y = yield Probes(_pairs(across, _SIZES[:, None] / far * q), phase="outside")
    if d > 1 and float(np.abs(y).max()) > allowed * far * size:
        return "there are several heads, with a kernel each or one: tokens across the sum of their values are answered"
    return None


def _pairs(x: Array, q: Array) -> Array:
    """Sequences [x ; q] (n, 2, d) of rows, one of them for all where it is alone."""
    return np.stack(np.broadcast_arrays(x, q), axis=1)
