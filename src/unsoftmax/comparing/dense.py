"""How large is a change without structure? Norms of dW from near ties in all directions, with intervals.

Of a layer, by head, where values may have changed too:

Sequences [b + a ; b] and their three turned copies: a'dW_h b turns with a and with b, dc_h . a with a alone, and what
changed values leave in a head's weight with neither, or falls as 1 / |a|^2. So a is long, and orthogonal to the key
directions of every head at b and at -b. A head that took over another's scores would not show there: where values are
the reference's, a has a part along the key directions as well, in which scores are of order one, and a change
dW_h = sum_g m_g W_g is read off a'dW_h b = sum_g m_g a'W_g b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.reading import Reading, read_tokens
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.sphere import sphere

PHASE = "heads"

_KURTOSIS = 8.0
"""Derived: variance of a squared a'dW b over its squared mean is 8 for a change of rank one, 2 for a dense one: the
worst."""


@dataclass(frozen=True)
class Size:
    """A relative norm with an interval that covers it in at least 95 of 100 cases; `high` may be infinite."""

    estimate: float
    low: float
    high: float

    def facts(self) -> dict[str, float | None]:
        return {"relative": self.estimate, "low": self.low, "high": self.high if math.isfinite(self.high) else None}


def interval(squares: Array, noise: Array, norm: float) -> Size:
    """From n values whose mean is the squared norm of the change plus that of the noise."""
    n = max(1, len(squares))
    mean = float(squares.mean()) if len(squares) else 0.0
    estimate = math.sqrt(max(mean - float(noise.mean()) if len(noise) else mean, 0.0)) / norm
    spread = math.sqrt(_KURTOSIS / n)
    top = math.sqrt(mean) / norm
    low = math.sqrt(max(estimate, 0.0) ** 2 / (1 + EXPLAINING.lower_end * spread))
    return Size(estimate, low, top / math.sqrt(max(1 - EXPLAINING.upper_end[0] * spread, EXPLAINING.upper_end[1])))


@dataclass(frozen=True)
class Sized:
    """|dW_h| / |W_h| and |dc_h| / |c_h| of every head; the heads whose W changed, and those whose c did."""

    scores: dict[int, Size]
    offsets: dict[int, Size]
    changed: list[int]
    moved: list[int]


@dataclass(frozen=True)
class Gap:
    """Relative difference of answers from the reference's: as they are, and up to a scale and a shift."""

    plain: float
    scale: float
    scaled: float

    @property
    def scaled_only(self) -> bool:
        """Whether another scale makes far answers near: they are no other model's."""
        return self.plain > EXPLAINING.other_model >= self.scaled

    @property
    def words(self) -> str:
        return (
            f"The answers are the reference's scaled by about {self.scale:.4g}, and {self.scaled:.1g} of their size "
            "differs besides; that is not one of the changes that are told."
        )


def gap_of(y: Array, truth: Array) -> Gap:
    """From answers and the reference's, (n,) or (n, outputs)."""
    rms = lambda x: float(np.sqrt(np.mean(x**2)))  # noqa: E731
    f, g = truth - truth.mean(axis=0), y - y.mean(axis=0)
    size = float((f * f).sum())
    scale = float((f * g).sum()) / size if size > 0 else 0.0
    scaled = rms(g - scale * f) / (abs(scale) * rms(f)) if scale else math.inf
    return Gap(rms(y - truth) / max(rms(truth), 1e-150), scale, scaled)


def size_of_scores(heads: Heads, h: int, read: Reading) -> Size:
    """|dW_h| / |W_h| from readings of one head at directions that are as good as isotropic."""
    lengths = np.linalg.norm(read.a, axis=1) * np.linalg.norm(read.b, axis=1)
    use = np.isfinite(read.sd)
    scale = (heads.dim / lengths[use]) ** 2
    size = interval(read.D[use] ** 2 * scale, read.sd[use] ** 2 * scale, float(np.linalg.norm(heads.W[h])) or 1.0)
    return size if use.mean() >= 1 - EXPLAINING.most_shut else replace(size, high=math.inf)


def size_of_all_scores(heads: Heads, X: Array, residual: Array, sd: Array) -> Size:
    """|dW| / |W| of all scalar heads together from near ties X (n, 2, d) under all of them, none of which is isolated.

    Directions that other heads write are among these, which near ties of one head alone leave out: errors of a copy
    recovered from answers lie there.
    """
    a, b = X[:, 0] - X[:, 1], X[:, 1]
    t = heads.gaps(X)
    effect = np.abs(a @ heads.P[:, 0].T).T / (2 + np.exp(t) + np.exp(-t))
    norms = np.linalg.norm(heads.W, axis=(1, 2))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) / heads.dim
    # The answer if every head changed by its own size, at random.
    whole = np.maximum(np.sqrt(((effect * norms[:, None]) ** 2).sum(axis=0)) * lengths, 1e-150)
    return interval((residual / whole) ** 2, (sd / whole) ** 2, 1.0)


def standing(kinds: list[list[Array]], alpha: float) -> list[list[int]]:
    """Heads that changed by kind of change, from what each shows in units of the noise: those beyond it, and where some
    are beyond what rounding of unknown biases may leave, these alone."""
    sizes = [[float(np.sqrt(np.mean(z**2))) if len(z) else 0.0 for z in heads] for heads in kinds]
    clear = [[h for h, size in enumerate(heads) if size > COMPARING.unmodelled] for heads in sizes]
    if any(clear):
        return clear
    return [[h for h, z in enumerate(heads) if statistics.tail(z**2) < alpha / len(heads)] for heads in kinds]


def sized_scores(state: Evidence, *, along: bool) -> Asking[Sized]:
    """Sizes of the changes of all heads' scores; `along`: among the key directions of the reference as well."""
    heads, rng = state.heads, state.rng
    d, H, n = heads.dim, heads.count, EXPLAINING.quads
    usual, room = state.plan.usual, state.plan.asked.spec.domain.norm_limit
    for factor in EXPLAINING.lengths:
        b = sphere(rng, (n, d)) * min(usual * EXPLAINING.query_norm, room / 4)
        a = sphere(rng, (n, d)) * min(usual * factor, room / 2)
        X = state.plan.asked.on_grid(_quads(heads, a, b, rng, along=along), fine=True)
        made, y = yield from state.ask(X, PHASE, measured=True)
        D, sd = (part[:, :, 0].reshape(H, 4, n) for part in read_tokens(heads, X, y, made.sd))
        open_ = np.asarray(np.isfinite(sd).all(axis=1))
        if open_.mean() >= EXPLAINING.open_readings:
            break
    turned = np.einsum("s,hsn->hn", np.array([1, -1, -1, 1]) / 4, D)
    offset = np.einsum("s,hsn->hn", np.array([1, -1, 1, -1]) / 4, D)
    # Rounding is the same where both turn: two of the four readings are independent.
    noise = np.where(np.isfinite(sd), sd, 0.0).max(axis=1) / np.sqrt(2)
    # Tokens are rounded one by one, so that turned ones are turned up to that.
    leak = EXPLAINING.sent_rounding * np.abs(D).max(axis=1) if state.plan.noise.arithmetic != "float64" else 0.0
    a, b = X[:n, 0] - X[:n, 1], X[:n, 1]
    lengths, others = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    written = np.einsum("nd,gde,ne->gn", a, heads.W, b)
    levels = (noise, np.hypot(noise, leak))
    z = [
        [(D[h] / np.maximum(level[h], 1e-300))[open_[h]] for h in range(H)]
        for D, level in zip((turned, offset), levels, strict=True)
    ]
    found, moved = standing(z, state.alpha)
    sizes, offsets = {}, {}
    for h in range(H):
        use, none = open_[h], np.zeros(int(open_[h].sum()))
        rest, mixed, error = (
            _mixture(heads, h, turned[h][use], written[:, use]) if along else (turned[h][use], 0.0, 0.0)
        )
        scale = (d / (lengths * others)[use]) ** 2
        size = interval(rest**2 * scale, none, float(np.linalg.norm(heads.W[h])) or 1.0)
        sizes[h] = _with_mixture(size, mixed, error)
        span = d / lengths[use] ** 2
        offsets[h] = interval(offset[h][use] ** 2 * span, none, float(np.linalg.norm(heads.c[h])) or 1.0)
    return Sized(sizes, offsets, found, moved)


def _quads(heads: Heads, a: Array, b: Array, rng: np.random.Generator, *, along: bool) -> Array:
    """[b + a ; b] (4n, 2, d) with a, b and both turned, a across the key directions at b and -b, or with scores of
    order one."""
    keys = np.concatenate([heads.key_directions(b), heads.key_directions(-b)]).transpose(1, 2, 0)
    basis = np.linalg.qr(keys)[0]
    a = a - np.einsum("bdk,bek,be->bd", basis, basis, a)
    if along:
        wanted = rng.uniform(-COMPARING.tie_spread, COMPARING.tie_spread, (len(a), keys.shape[2]))
        part = np.einsum("bkd,bk->bd", np.linalg.pinv(keys), wanted)
        size = np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300)
        a = a + part * np.minimum(1.0, np.linalg.norm(a, axis=1, keepdims=True) / size)
    return np.concatenate([np.stack([s * a + t * b, t * b], axis=1) for s, t in ((1, 1), (-1, 1), (1, -1), (-1, -1))])


def _mixture(heads: Heads, h: int, turned: Array, written: Array) -> tuple[Array, float, float]:
    """What a mixture sum_g m_g W_g leaves of a'dW_h b (n,), given a'W_g b (H, n), and its size over |W_h| with its
    error; nothing of a mixture, and how large one may be, where it does not explain more than as many numbers must."""
    H, n = written.shape
    norm = float(np.linalg.norm(heads.W[h])) or 1.0
    if n <= H or not turned.any():
        return turned, 0.0, 0.0
    inverse = np.linalg.pinv(written.T)
    m = inverse @ turned
    rest = turned - m @ written
    free = float(rest @ rest) / (n - H)
    sizes = np.linalg.norm(heads.W, axis=(1, 2))
    error = math.sqrt(free) * float(np.linalg.norm(np.linalg.norm(inverse, axis=1) * sizes)) / norm
    ratio = (float(turned @ turned) - float(rest @ rest)) / H / max(free, 1e-300)
    if stats.f.sf(ratio, H, n - H) >= EXPLAINING.tail:
        return turned, 0.0, error
    mixed = float(np.linalg.norm(np.einsum("g,gde->de", m, heads.W))) / norm
    return rest * math.sqrt(n / (n - H)), mixed, error


def _with_mixture(size: Size, mixed: float, error: float) -> Size:
    """Both parts of a change together, with their errors."""
    low = math.hypot(size.low, max(mixed - EXPLAINING.mixture_errors * error, 0.0))
    high = math.hypot(size.high, mixed + EXPLAINING.mixture_errors * error) if mixed else size.high
    return Size(math.hypot(size.estimate, mixed), low, high)
