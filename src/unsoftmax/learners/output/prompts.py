"""Prompts of random ids: hidden states in general position are all that is needed.

Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec

LENGTH = 8
"""Ids in a prompt: V^8 prompts are never drawn twice, and a service bills by the token."""


def random_prompts(spec: OracleSpec, count: int, rng: np.random.Generator) -> Array:
    """Ids (count, N), N at most `LENGTH` and what the domain allows beside chosen tokens."""
    chosen = (spec.outputs or 0) if spec.shows == "chosen" else 0
    length = int(min(LENGTH, spec.domain.length_limit - chosen))
    return np.asarray(rng.choice(spec.allowed, (count, length)))
