"""Refusals that rest on a rank or a cluster: whether the noise of the answers may have blurred it.

How many directions a head writes into, which heads share a token and which eigenvalues belong together is told by
what is small: singular values that stand at the noise. Where what the heads write has directions between the noise
and what is told from it, another layer of the class may have looked the same.

Theory: docs/theory/attention-layer.md, "A real layer", ranges.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.constants import CORE
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array
from unsoftmax.solvers.subspace import floor_for


def refusal(reason: str, M: Array, noise: float, code: Code | None = None) -> ModelMismatch | NotIdentifiable:
    """`reason` as a `ModelMismatch` of this code; where noise may be the reason, as what the answers leave open.

    M (outputs, d): what all heads write together; `noise`: of the answers, relative. Of answers in float64 the reason
    stands: what is small there is small in the target.
    """
    sizes = np.linalg.svd(M, compute_uv=False)
    floor = floor_for(noise)
    # What stands at the noise itself may be nothing: heads need not fill the answers.
    faint = int(((sizes < floor * sizes[0]) & (sizes > CORE.stated_over_rounding * noise * sizes[0])).sum())
    if noise < SHORT_FORMAT or faint == 0:
        return ModelMismatch(reason, code=code)
    return NotIdentifiable(
        f"the rounding of the answers hides which head is which: {faint} of {len(sizes)} directions that the heads "
        f"write into are fainter than {floor:.1g} of the strongest, where answers good to {noise:.1g} tell no rank. A "
        f"layer of this class may look like none for that alone ({reason.removesuffix('.')})",
        advice="ask for answers with more digits (float64), or for a part with fewer heads.",
        code=Code.UNDETERMINED,
    )
