"""What reaches the network behind attention: is there a residual, and does the network have biases?

Theory: docs/theory/transformer.md, "Section 4.1", statement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.order import FELT
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.spec import OracleSpec

_VECTORS = 3
"""Random vectors at which the wirings are compared; all of them must agree, so that a coincidence at one decides
nothing."""


@dataclass(frozen=True)
class Wiring:
    """residual: x_N is added to the attention output; bias: the network is not homogeneous."""

    residual: bool
    bias: bool

    def __str__(self) -> str:
        found = [name for name, there in (("a residual", self.residual), ("biases", self.bias)) if there]
        return " and ".join(found) or "neither biases nor residual"


def read_wiring(spec: OracleSpec, rng: np.random.Generator) -> Asking[Wiring]:
    """Ten queries: [x], which gives g(x) or g(2x), beside [2x ; 0] and [4x ; 0], which give g(x) and g(2x) anyhow."""
    length = power_of_two(min(np.sqrt(spec.dim), spec.domain.norm_limit / 8))
    x = rng.standard_normal((_VECTORS, spec.dim))
    x = on_grid(x / np.linalg.norm(x, axis=1, keepdims=True), 2.0, spec.dtype) * length
    alone = yield Probes(x[:, None, :], phase="pilot")
    rows = np.concatenate([2 * x, 4 * x, np.zeros((1, spec.dim))])
    y = yield Probes(np.stack([rows, np.zeros_like(rows)], axis=1), phase="pilot")
    once, twice, origin = y[:_VECTORS], y[_VECTORS:-1], float(y[-1])
    size = float(np.sqrt(np.mean(y**2)))
    noise = FELT * spec.eps * size + 4 * spec.tolerance

    def same(a: Array, b: Array) -> bool:
        return bool(np.abs(a - b).max() <= noise)

    bias = abs(origin) > noise or not same(twice, 2 * once)
    if same(alone, once):
        return Wiring(False, bias)
    if same(alone, twice):
        return Wiring(True, bias)
    raise ModelMismatch(
        "a single token x answers neither as attention on it alone would, g(x), nor with x added once more, g(2x): "
        "the target transforms tokens before or after attention. AttentionBehind reads W all the same."
    )
