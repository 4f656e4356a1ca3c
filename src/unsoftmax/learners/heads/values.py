"""Values once more, directly: where one head alone is on, F = z.v_h, and d such z give v_h to the last digits.

The scores found before say where that is, so nothing is searched. The largest value follows from the sum V.

Theory: docs/theory/multi-head.md, "Generic heads", values.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.heads.ground import Ground
from unsoftmax.probes.base import Array

SATURATED = 40.0
"""Score, beyond the log of the values' ratio, at which a head is on or off: e^-40 = 4e-18 is below float64 rounding."""

_PARALLEL = 1e-6
"""Smallest singular value of the normalised key directions at which they can still be switched one by one: below, z
would be a million times longer."""


def separable(w: Array) -> bool:
    """Can saturation switch the heads with key directions w (H, d) one by one?"""
    if not 0 < len(w) <= w.shape[1]:
        return False
    units = w / np.linalg.norm(w, axis=1, keepdims=True)
    return bool(np.linalg.svd(units, compute_uv=False)[-1] > _PARALLEL)


def read_values_alone(ground: Ground, b0: Array, w: Array, v: Array) -> Asking[Array]:
    """v (H, d) again from (H - 1) d queries at b0, w = W b0 (H, d) being separable and v (H, d) approximate."""
    H, d = v.shape
    if H == 0:
        return v
    sizes = np.linalg.norm(v, axis=1)
    order = np.argsort(sizes, kind="stable")
    # What a head that is off still answers must vanish beside the weakest.
    off = SATURATED + float(np.log(sizes.max() / sizes.min()))
    Z = [_only(w, h, off) for h in order[:-1]]
    new = np.empty_like(v)
    if Z:
        F = yield from ground.pairs(np.concatenate(Z), b0, phase="main")
        for h, z, f in zip(order[:-1], Z, F.reshape(H - 1, d), strict=True):
            new[h] = np.linalg.solve(z, f)
    total = ground.V if ground.zero is None else ground.V - ground.zero
    new[order[-1]] = total - new[order[:-1]].sum(axis=0)
    return new


def _only(w: Array, h: int, off: float) -> Array:
    """d independent z (d, d) at which head h is on and all others are off, by at least `off` in the scores."""
    norms = np.linalg.norm(w, axis=1)
    units = w / norms[:, None]
    dual = np.linalg.pinv(units)
    signs = -np.ones(len(w))
    signs[h] = 1.0
    centre = dual @ signs * (off / norms.min())
    length = np.linalg.norm(centre)
    null = np.linalg.qr(units.T, mode="complete")[0][:, len(w) :].T
    pushes = (dual / np.linalg.norm(dual, axis=0) * signs).T
    return np.asarray(centre + length * np.vstack([null, pushes]))
