"""All W_h behind an unknown network: corner, faces, then every matrix with the others held off.

Theory: docs/theory/multi-head.md, "Several heads behind a network", statement.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.behind.corner import Misled, find_corner, find_faces, find_far, saturating_query
from unsoftmax.learners.behind.far import Far
from unsoftmax.learners.behind.rows import read_matrix
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.driver import together
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

_ATTEMPTS = 4
"""Corners tried before the target is refused: a network of few neurons is silent in some corners where heads are on,
and another corner is then drawn."""


def read_heads_behind(spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Array, Far, float]]:
    """W (H, d, d), H found, where the network is homogeneous, and the relative error of W."""
    far = yield from find_far(spec, rng)
    b0 = yield from saturating_query(far, rng)
    for attempt in range(_ATTEMPTS):
        try:
            W, error = yield from _read_from_corner(spec, far, b0, rng)
            return W, far, error
        except Misled as error:
            # A network of few neurons is also silent where heads are on: such a corner is none.
            if attempt == _ATTEMPTS - 1:
                raise ModelMismatch(
                    f"{error} in {_ATTEMPTS} attempts: the target is not a sum of heads into a network, some heads "
                    "turn together (proportional W), or the network is silent for most tokens (very few neurons)."
                ) from error
    raise AssertionError


def _read_from_corner(spec: OracleSpec, far: Far, b0: Array, rng: np.random.Generator) -> Asking[tuple[Array, float]]:
    """W (H, d, d) from one corner, and the largest relative error of them."""
    corner = yield from find_corner(far, b0, rng)
    w = yield from find_faces(far, b0, corner, rng)
    seeds = rng.integers(2**63, size=len(w))
    read = yield from together(
        [read_matrix(far, b0, w, h, None, np.random.default_rng(seed)) for h, seed in enumerate(seeds)]
    )
    W = np.array([one for one, _ in read])
    return W.reshape(-1, spec.dim, spec.dim), max(error for _, error in read)
