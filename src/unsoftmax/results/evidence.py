"""What a recovery showed, small enough to travel with an audit: phases, claims, pictures of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from unsoftmax.models.base import Array, Model
from unsoftmax.results.recovery import Claim, Recovery

LARGEST_PICTURE = 64
"""Rows and columns of the picture of one head, larger matrices being averaged down: 4096 numbers travel with an
audit."""

_MOST_HEADS = 4
"""Heads that get a picture; with two pictures of 32 x 32 each, four are as many numbers as two of one head."""

_SMALLER = 32
"""Rows of a picture where there are several heads."""

Grid = list[list[float]]


@dataclass(frozen=True)
class Picture:
    """A matrix averaged over blocks; `true` and `difference` (recovered - true) where the owner gave the truth.

    `shows` says what rows, columns and squares are."""

    name: str
    recovered: Grid
    true: Grid | None = None
    difference: Grid | None = None
    shows: str = ""


@dataclass(frozen=True)
class Evidence:
    """Of one recovery: what model came out, queries by phase, claims of the certificate, pictures of its weights.

    `asked` is the scope of the certificate in words."""

    model: str
    status: str
    phases: dict[str, int]
    claims: tuple[Claim, ...]
    pictures: tuple[Picture, ...]
    asked: str = ""


def evidence_of(recovery: Recovery, truth: Model | None = None) -> Evidence:
    """The evidence of a recovery; pictures are compared with the truth where shapes agree."""
    model = recovery.model
    return Evidence(
        "no model" if model is None else f"a {type(model).__name__} of dimension {model.dim}",
        recovery.status.value,
        dict(recovery.usage.phases),
        recovery.certificate.claims,
        tuple(_pictures(_matrices(model), _matrices(truth))),
        "" if recovery.certificate.scope is None else str(recovery.certificate.scope),
    )


def evidence_from(data: dict[str, Any]) -> Evidence:
    """Inverse of dataclasses.asdict; TypeError, ValueError or KeyError if the data are something else."""
    pictures = tuple(Picture(**picture) for picture in data["pictures"])
    for picture in pictures:
        for grid in (picture.recovered, picture.true, picture.difference):
            if grid is not None and np.asarray(grid, dtype=float).ndim != 2:
                raise ValueError("a picture is not a matrix")
    return Evidence(
        str(data["model"]),
        str(data["status"]),
        {str(name): int(n) for name, n in data["phases"].items()},
        tuple(
            Claim(**{**claim, "bound": inf if claim["bound"] is None else claim["bound"]}) for claim in data["claims"]
        ),
        pictures,
        str(data.get("asked", "")),
    )


def _matrices(model: Any) -> Array | None:
    """W of the heads, (H, d, d); None if there is no such thing."""
    W = getattr(model, "W", None)
    if W is None or np.ndim(W) not in (2, 3) or not np.isfinite(W).all():
        return None
    W = np.asarray(W, dtype=float)
    return W[None] if W.ndim == 2 else W


def _pictures(found: Array | None, truth: Array | None) -> list[Picture]:
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    if found is None or not found.size:
        return []
    if truth is not None and truth.shape != found.shape:
        truth = None
    if truth is not None:
        # Heads come in any order: each is shown beside the one nearest to it.
        gaps = np.linalg.norm(found[:, None] - truth[None], axis=(2, 3))
        truth = truth[linear_sum_assignment(gaps)[1]]
    rows = LARGEST_PICTURE if len(found) == 1 else _SMALLER
    names = ["W"] if len(found) == 1 else [f"W of head {h + 1}" for h in range(len(found))]
    pictures = []
    shows = _shows(found.shape[1], rows)
    for h, name in enumerate(names[:_MOST_HEADS]):
        if truth is None:
            pictures.append(Picture(name, _grid(found[h], rows), shows=shows))
        else:
            pictures.append(
                Picture(name, _grid(found[h], rows), _grid(truth[h], rows), _grid(found[h] - truth[h], rows), shows)
            )
    return pictures


def _shows(dim: int, rows: int) -> str:
    """What the squares of a picture of a (dim, dim) matrix are."""
    square = -(-dim // min(dim, rows))
    each = "a square is an entry" if square == 1 else f"a square is the mean of up to {square} x {square} entries"
    return f"rows: coordinates of the key, columns: of the query token; {dim} x {dim}, {each}"


def _grid(matrix: Array, rows: int) -> Grid:
    return [[float(f"{x:.4g}") for x in row] for row in shrunk(matrix, rows)]


def shrunk(matrix: Array, most: int = LARGEST_PICTURE) -> Array:
    """Block means of a matrix down to at most `most` rows and columns."""
    rows, columns = (np.array_split(np.arange(n), min(n, most)) for n in matrix.shape)
    return np.array([[matrix[np.ix_(r, c)].mean() for c in columns] for r in rows])
