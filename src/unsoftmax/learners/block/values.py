"""Where each head writes, who shares values, and the RMSNorm's eps.

Random tokens show how many dimensions heads write and who shares values; tokens made for it show it well.

Theory: docs/theory/attention-layer.md, "Behind a network", values.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch
from unsoftmax.learners.block.columns import CELLS, choose, read_columns, read_everywhere
from unsoftmax.learners.block.fits import Fits, Spans
from unsoftmax.learners.block.infinity import Infinity
from unsoftmax.learners.block.quiet import WRITTEN, Quiet
from unsoftmax.learners.block.table import Table
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.values import Values, sharing
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array

_FADES = 8
"""Shrunk tokens asked at most for eps: each tells how far to shrink the next one."""

_SCORE = 0.7
"""Score, over the query token's own, that tokens are given which show what heads write: a head that hardly looks at
them shows it badly, and one that looks at nothing else shows its denominators badly."""

_LONGEST = 0.8
"""Length of the part of such a token that is prescribed, as a share of the radius; the rest is free."""


def find_spans(far: Infinity, quiet: Quiet, tables: list[Table], rng: np.random.Generator) -> Asking[Spans]:
    """New tokens until P_h x stops growing, before H + 3 cells each; fairly well known.

    Tokens are at right angles to the query tokens of the rough maps, which are compared with them.
    """
    free = np.linalg.svd(np.stack([rough.q for rough in quiet.rough]))[2][2:]
    X = far.radius * orthonormal(rng, len(free)) @ free
    columns: list[Array] = []
    for x in X:
        new, miss = yield from read_everywhere(far, tables, x, "fair")
        if columns:
            O = np.stack(columns, axis=2)
            inside = [np.linalg.lstsq(o, p, rcond=None)[0] for o, p in zip(O, new, strict=True)]
            off = [np.linalg.norm(o @ z - p) / np.linalg.norm(p) for o, z, p in zip(O, inside, new, strict=True)]
            if max(off) < WRITTEN:
                return Spans(X[: len(columns)], O, sharing(np.array(inside), 1e-2), miss)
        columns.append(new)
        if len(new) * len(columns) > 4 * far.dim:
            break
    raise ModelMismatch("what heads write grows with every token: more than attention stands before the network.")


def read_spans(far: Infinity, tables: list[Table], spans: Spans, fits: Fits, rng: np.random.Generator) -> Asking[Spans]:
    """What heads write of s tokens made for it: values at right angles in every group, some weight in every head."""
    (X,) = yield from settle("telling tokens", far.on_sphere(_telling(far, spans, fits, rng)))
    found = []
    for x in X:
        found.append((yield from read_everywhere(far, tables, x, "full")))
    O = np.stack([columns for columns, _ in found], axis=2)
    return Spans(X, O, spans.group, max(miss for _, miss in found))


def _telling(far: Infinity, spans: Spans, fits: Fits, rng: np.random.Generator) -> Array:
    """s tokens (s, d) on the sphere with prescribed values, and scores as far as these are linear in the token."""
    s, d = spans.width, far.dim
    V = np.vstack([np.linalg.qr(part.T)[0].T for part in fits.V.reshape(-1, s, d)])
    wanted = np.vstack([np.linalg.qr(rng.standard_normal((s, s)))[0] for _ in range(spans.groups)])
    whole = np.vstack([V, fits.scores[:, :-1]])
    inverse = np.linalg.pinv(whole)
    written = inverse[:, : len(V)] @ wanted
    level = (inverse[:, len(V) :] @ (_SCORE - fits.scores[:, -1]))[:, None]
    length = max(float(np.linalg.norm(level)), 1e-300)
    level = level * min(1.0, 0.5 * _LONGEST * far.radius / length)
    room = np.sqrt((_LONGEST * far.radius) ** 2 - np.linalg.norm(level) ** 2)
    written *= 0.8 * room / np.linalg.norm(written, axis=0).max()
    part = (written + level).T
    free = np.linalg.svd(whole)[2][len(whole) :]
    rest = rng.standard_normal((s, len(free))) @ free
    size = np.sqrt(np.maximum(far.radius**2 - (part**2).sum(axis=1), 0)) / np.linalg.norm(rest, axis=1)
    return np.asarray(part + rest * size[:, None])


def values_of(spans: Spans, fits: Fits) -> Values:
    """With orthonormal rows of V."""
    O, V = spans.O.copy(), fits.V.reshape(spans.groups, spans.width, -1).copy()
    for g in range(len(V)):
        q, r = np.linalg.qr(V[g].T)
        V[g] = q.T
        O[spans.group == g] = O[spans.group == g] @ r.T
    return Values(O, V, spans.group, max(spans.misfit, fits.misfit))


def find_eps(far: Infinity, table: Table, spans: Spans) -> Asking[float]:
    """eps from how a token fades as it is shrunk: its share of what it wrote on the sphere is s / sqrt(s^2 + eps)."""
    chosen, whole = choose(table, table.heads + CELLS), far.visible(table.q) @ spans.O[:, :, 0].T
    unit, k, guess = spans.X[0], -9, 0.0
    for _ in range(_FADES):
        size = 2.0**k
        found = yield from read_columns(far, chosen, size * unit, "pilot")
        share = float((found.columns * whole).sum() / (whole * whole).sum())
        if 0.3 < share < 0.8:
            return size**2 * (1 - share**2) / share**2
        if not 0 < share < 1.001:
            break
        guess = size**2 * (1 - share**2) / share**2 if share < 0.9999 else size**2 * 1e-4
        k = int(np.floor(np.log2(0.7 * np.sqrt(max(guess, 1e-300)))))
    raise DomainError(
        f"the RMSNorm's eps (about {guess:.1g}) does not show: tokens cannot be brought inside its sphere, which this "
        "learner needs. RMSNorms with eps of 1e-12 and more are served."
    )
