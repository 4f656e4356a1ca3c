"""Singular value decompositions that do not stop short of an answer.

LAPACK's divide and conquer (gesdd, what numpy calls) gives up on a few matrices of low rank plus last digits; its QR
iteration (gesvd), which is slower, does not.

Theory: docs/theory/attention-layer.md, "A real layer", ranges.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import svd as by_qr

from unsoftmax.probes.base import Array


def svd(M: Array, full_matrices: bool = True) -> tuple[Array, Array, Array]:
    """As `np.linalg.svd` of M (..., n, m), digit by digit where that ends; LinAlgError if M is not finite.

    Of 104392 decompositions for 72 layers of width 32 to 64 one did not end, of rank 16 with 1e-12 and less beside it.
    """
    try:
        left, sizes, right = np.linalg.svd(M, full_matrices=full_matrices)
    except np.linalg.LinAlgError:
        if not np.isfinite(M).all():
            raise
        flat = M.reshape(-1, *M.shape[-2:])
        parts = [by_qr(m, full_matrices=full_matrices, lapack_driver="gesvd") for m in flat]
        whole = [np.stack(part) for part in zip(*parts, strict=True)]
        left, sizes, right = (part.reshape(*M.shape[:-2], *part.shape[1:]) for part in whole)
    return left, sizes, right
