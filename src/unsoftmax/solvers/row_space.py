"""The rank of a matrix of noisy rows, found without knowing the noise: a gap, then a flat tail.

Rows that all lie in a space of dimension k leave singular values k + 1, ... to the noise, and those of noise are alike
(Marchenko and Pastur 1967): their largest and smallest differ by less than (sqrt m + sqrt n) / (sqrt m - sqrt n).

Theory: docs/theory/output-layer.md, "The output layer", when is the rank certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd

GAP = 10.0
"""Least ratio of the last singular value of the signal to the first of the noise. The largest ratio of neighbours in
the spectrum of a square Gaussian matrix of 200 rows, its last two aside, was 1.9 in 2000 draws; at 10 the error of the
row space, the inverse of the ratio, is a tenth."""

FLAT = 10.0
"""Largest ratio within the tail over that of independent noise: rounding in a number format is correlated within a row;
3.1 was the most seen in float32, float16 and decimals."""

ARITHMETIC = 16.0
"""Roundings, relative to the largest singular value, that a singular value decomposition and orthonormal rows leave:
2 to 5 were seen for 40 to 600 rows."""


@dataclass(frozen=True)
class RankFound:
    """`rank`, the singular values (n,) it was read from, the ratio at the gap, and the noise as a spectral norm."""

    rank: int
    values: Array
    gap: float
    noise: float

    @property
    def angle(self) -> float:
        """Sine of the largest angle between the row space read and the true one (Wedin 1972), arithmetic included."""
        noise = self.noise + ARITHMETIC * np.finfo(np.float64).eps * float(self.values[0])
        return float(noise / max(float(self.values[self.rank - 1]) - noise, 1e-300))


def rank_of(values: Array, columns: int, spare: int) -> RankFound | None:
    """The rank that singular values (n,), largest first, of n rows and `columns` columns show; None if they do not.

    At least `spare` of them must be noise: with fewer, a slow decay can look like an end.
    """
    n = len(values)
    if values[0] == 0.0:
        return None
    floor = float(values[0]) * np.finfo(np.float64).eps
    s = np.maximum(values, floor)
    ratios = s[:-1] / s[1:]
    ratios[max(0, n - spare) :] = 0.0
    k = int(np.argmax(ratios)) + 1
    if ratios[k - 1] < GAP or k > n - spare:
        return None
    spread = (np.sqrt(columns - k) + np.sqrt(n - k)) / max(np.sqrt(columns - k) - np.sqrt(n - k), 0.5)
    if s[k] / s[-1] > FLAT * spread:
        return None
    # The tail shows the noise outside the row space; all of it is larger by as much as its dimensions are.
    noise = float(s[k]) * (np.sqrt(columns) + np.sqrt(n)) / (np.sqrt(columns - k) + np.sqrt(n - k))
    return RankFound(k, values, float(ratios[k - 1]), noise)


def curved(rows: Array, rank: int) -> float:
    """Share of what `rank` dimensions leave of rows (n, m) that squares and cubes of the entries explain, 0 to 1.

    Rounding and noise know nothing of them; a cap, or any other smooth function behind the logits, leaves them first.
    """
    U, s, Vt = svd(rows, full_matrices=False)
    fitted = (U[:, :rank] * s[:rank]) @ Vt[:rank]
    left = rows - fitted
    size = float(np.sqrt(np.mean(fitted**2))) or 1.0
    features = []
    for power in (2, 3):
        x = (fitted / size) ** power
        x = x - U[:, :rank] @ (U[:, :rank].T @ x)
        features.append((x - (x @ Vt[:rank].T) @ Vt[:rank]).ravel())
    design = np.stack(features, axis=1)
    total = float(np.sum(left**2))
    if total == 0.0:
        return 0.0
    fit = design @ np.linalg.lstsq(design, left.ravel(), rcond=None)[0]
    return float(np.sum(fit**2)) / total
