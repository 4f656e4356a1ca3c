"""Which stored matrix a low-rank change of scores is in: keys or queries."""

from __future__ import annotations

import numpy as np

from unsoftmax.comparing.heads import Heads
from unsoftmax.models.base import Array

_INSIDE = 0.05
"""Part of a change (as amplitude) that may lie outside the space a matrix can reach."""


def named_factors(heads: Heads, change: Array) -> tuple[str, dict[str, Array]]:
    """ "Q", "K" or "K and Q", and dQ or dK (H, r, d).

    dW_h = K_h'dQ_h has its columns in the rows of K_h, dW_h = dK_h'Q_h its rows in those of Q_h; where every matrix
    reaches everywhere (r = d), an update that all heads share tells: its rows (Q) or its columns (K) agree.
    """
    if heads.K is None or heads.Q is None:
        return "W", {}
    dQ = np.stack([np.linalg.lstsq(K.T, D, rcond=None)[0] for K, D in zip(heads.K, change, strict=True)])
    dK = np.stack([np.linalg.lstsq(Q.T, D.T, rcond=None)[0] for Q, D in zip(heads.Q, change, strict=True)])
    size = float(np.linalg.norm(change)) or 1.0
    left_q = float(np.linalg.norm(heads.K.transpose(0, 2, 1) @ dQ - change)) / size
    left_k = float(np.linalg.norm(dK.transpose(0, 2, 1) @ heads.Q - change)) / size
    if left_q <= _INSIDE and left_k <= _INSIDE:
        of_q = np.linalg.matrix_rank(dQ.reshape(-1, heads.dim), tol=_INSIDE * np.linalg.norm(dQ))
        of_k = np.linalg.matrix_rank(dK.reshape(-1, heads.dim), tol=_INSIDE * np.linalg.norm(dK))
        if of_q == of_k:
            return "K or Q", {}
        return ("Q", {"Q": dQ}) if of_q < of_k else ("K", {"K": dK})
    if left_q <= _INSIDE:
        return "Q", {"Q": dQ}
    return ("K", {"K": dK}) if left_k <= _INSIDE else ("K and Q", {})
