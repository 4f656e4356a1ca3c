"""A scene behind a LayerNorm: tokens off their mean, in d - 1 dimensions, are those of an RMSNorm.

(x - mean) / sqrt(var(x) + eps) is x / sqrt(mean x^2 + eps) wherever the mean is 0, so that heads which share values are
told apart by tokens that write nothing here as well.

Theory: docs/theory/attention-layer.md, "Layers of language models", scene.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.models.attention_layer import Norm
from unsoftmax.probes.base import Array


@dataclass(frozen=True, eq=False)
class CentredScene(Scene):
    """Tokens z (..., dim) are coordinates in the orthonormal rows of `basis` (dim, d), each of mean 0; dim = d - 1."""

    basis: Array = field(kw_only=True)

    @property
    def norm(self) -> Norm | None:
        return "pre"

    @property
    def radius(self) -> float:
        return float(np.sqrt(self.basis.shape[1]))

    def tokens(self, z: Array) -> Array:
        return super().tokens(z @ self.basis)

    def seen(self, x: Array) -> Array:
        # Rounding to float32 leaves a mean, which the target takes away as well.
        return super().seen((x @ self.basis.T) @ self.basis) @ self.basis.T

    def of_tokens(self, rows: Array) -> Array:
        return np.asarray(rows @ self.basis)
