"""Logits of sinks: two copies of a token before an empty one, against one copy.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.rotary.apart import Apart
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.probes.base import Array


def read_sinks(scene: Scene, apart: Apart) -> Asking[tuple[Apart, Array]]:
    """One query. Before x = 0 all scores are 0: the weight of x is 1 / (2 + e^b) alone and 2 / (3 + e^b) in two copies.

    Columns were scaled to add up to the answer of [x, 0]; with b known they are P_h x.
    """
    x = apart.x
    y, _ = yield from scene.ask(np.stack([x, x, np.zeros_like(x)])[None], "main")
    ratio = np.linalg.lstsq(apart.columns, y[0], rcond=None)[0]
    weight = (3 * ratio - 4) / (2 - ratio)
    if not (weight > 0).all():
        raise ModelMismatch(
            "two copies of a token weigh more than sinks allow: the weights of heads do not add up to 1 for another "
            "reason (gates, another kernel)."
        )
    shares = 2 + weight
    return replace(apart, columns=apart.columns * shares, sums=apart.sums * shares[:, None]), np.log(weight)
