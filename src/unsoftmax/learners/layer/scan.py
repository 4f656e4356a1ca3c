"""Hard attention: among large tokens every head picks one. Which ones, how many, and how far they may move.

Attention that writes nothing: the answer is the last token's alone, and no query shows a head.

Theory: docs/theory/attention-layer.md, "A real layer", scan.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.noise import LOUD
from unsoftmax.learners.layer.norms import SAME
from unsoftmax.learners.layer.picks import PLAIN, UNKNOWN, Picks, Readout, measured
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.solvers.subspace import floor_for, support
from unsoftmax.spec import OracleSpec

_ROUNDINGS = 4.0
"""Units of the answers' noise within which two answers count as one: each of them rounds, and so does the sum with a
residual."""

_SIZES = (1.0, 2.0**-10)
"""Typical coordinates of the tokens that are asked, within the norm limit: of order one, and so short that every head
attends to all alike."""


def same(answers: Array, base: Array, noise: float) -> bool:
    """Whether the answers (n, outputs) are all `base` (outputs,), as far as noise lets it be seen."""
    return float(np.abs(answers - base).max()) <= _ROUNDINGS * noise * float(np.abs(base).max())


def refuse_silence(spec: OracleSpec, noise: float, rng: np.random.Generator) -> Asking[None]:
    """Ask one last token beside others, at two sizes: where none of them changes the answer, there is nothing to learn.

    Six queries. Heads that settle on the last token, however long the others are, answer to short ones.
    """
    for size in _SIZES:
        size = power_of_two(min(size, 0.2 * spec.domain.norm_limit / np.sqrt(spec.dim)))
        x = on_grid(rng.standard_normal((4, spec.dim)).clip(-3, 3) * size, 4 * size, spec.dtype)
        beside = np.stack([x[[0, 1, 3]], x[[1, 2, 3]], x[[2, 0, 3]]])
        y = yield Probes(beside, phase="pilot")
        if not same(y[1:], y[0], noise):
            return
    raise NotIdentifiable(
        "the answer is the same whatever the other tokens are: attention writes nothing that shows beside the last "
        "token, so neither W nor P of a head can be known."
    )


TOKENS = 1024
"""Tokens of a scan: two of H heads pick the same one with probability about H^2 / 2 TOKENS."""

_FAIR = 0.01
"""Reach, relative to the tokens, that no further scan is spent on, where answers are responses as they are."""

_WIDE = 0.06
"""The same where answers show directions only, which need larger moves for as many digits."""

_SIZE = 1e4
"""Typical coordinate of the tokens that are tried first: scores are some 10^8 times those of tokens of order one, so
that heads of usual size settle on one token."""

_SHARE = 0.4
"""Share of the norm limit that the norm of random tokens has as its root mean square: the rest is room for the longest
of them and for their moves."""

_DRAWS = 10
"""Sequences drawn before the scan is given up. Two of H heads share a token with probability H^2 / 2 `TOKENS`, so the
first few nearly always do; the rest are for tokens made longer until heads settle."""

_SURE = 3
"""Scans that must agree on a number of heads that does not divide the outputs: one with two heads on one token is
unlikely, three in a row are no accident."""

_TURN = 0.125
"""Share by which the query token is lengthened to see a residual: a power of two, so that the longer token is as exact,
and small enough that heads pick alike."""

SHORT = 2.0**-10
"""Length of the query token over that of the others: short enough that no head picks it by its score with itself, and a
power of two, which takes no digits."""

_MOVE = 2.0**-9
"""Largest move of a token in the scan, relative to the tokens: far below the margins between scores of long tokens, far
above the rounding of the answers, whatever their format."""

_SMALL_MOVE = 2.0**-19
"""The same where answers show directions only and are good to 1e-12: a direction is linear in small moves alone."""

_LEVELS = 32
"""Largest coefficient of a move, a whole number: so many levels tell 1024 tokens apart in few columns, and five bits
keep every move on the grid."""

_FINE = 16
"""Largest entry of the direction that all tokens move in, a whole number, for the same reason: four bits are random
enough."""


def ample(spec: OracleSpec) -> bool:
    """Whether tokens may be as long as a scan would like them."""
    return _largest(spec) >= _SIZE


def _largest(spec: OracleSpec) -> float:
    """Deviation of the coordinates of tokens that stay inside the domain."""
    return float(_SHARE * spec.domain.norm_limit / np.sqrt(spec.dim))


def scan(
    spec: OracleSpec, noise: float, least: int, wanted: int, rng: np.random.Generator, readout: Readout = PLAIN
) -> Asking[Picks]:
    """The widest of `wanted` scans that show the largest number of heads seen, at least `least` if any does."""
    largest = _largest(spec)
    size = min(_SIZE, largest)
    found: list[Picks] = []
    fruitless = 0
    for _ in range(_DRAWS):
        picks = yield from _one_scan(spec, noise, size, rng, readout)
        if picks is None:
            fruitless += 1
            # No head decided: larger tokens make larger scores.
            size = size if fruitless % 2 else min(size * 100, 1e12, largest)
            continue
        most = max([least, *(p.heads for p in found)])
        found.append(picks)
        alike = [p for p in found if p.heads == picks.heads]
        # Heads of equal rank that fill the answers divide them; where they do not, two may have shared a token.
        doubtful = bool(int(spec.outputs or 1) % picks.heads) and len(alike) < _SURE
        if picks.heads < most or doubtful:
            continue
        enough, patience = (_FAIR, 1) if readout.linear else (_WIDE, 3)
        enough = enough if len(alike) <= wanted + patience else 0.0
        alike = yield from measured(alike, enough, noise, spec, rng, readout)
        found = [p for p in found if p.heads != picks.heads] + alike
        best = max(alike, key=lambda p: p.reach)
        if best.reach > 0 and len(alike) >= wanted:
            return best
    # Fewer heads than expected after all draws: heads that share every token look like one.
    for heads in sorted({p.heads for p in found}, reverse=True):
        alike = [p for p in found if p.heads == heads]
        alike = yield from measured(alike, 0.0, noise, spec, rng, readout)
        best = max(alike, key=lambda p: p.reach)
        if best.reach > 0:
            return best
    if np.isfinite(spec.domain.norm_limit):
        raise DomainError(
            f"no hard attention below max_norm = {spec.domain.max_norm:g}: the heads never settled on single tokens. "
            "Raise max_norm if the target allows larger tokens."
        )
    raise ModelMismatch(
        "no sequence of large tokens made the heads settle on single tokens: a head without preference (W = 0 and "
        "c = 0), heads that always share a token, noise beyond the rounding of the answers, or a target that is not "
        "attention. Nothing can be separated."
    )


def _one_scan(
    spec: OracleSpec, noise: float, size: float, rng: np.random.Generator, readout: Readout
) -> Asking[Picks | None]:
    """Picks of one random sequence, their reach unknown; None if the heads did not settle."""
    d = spec.dim
    k = int(min(TOKENS, spec.domain.length_limit - 1))
    size, grid = power_of_two(size), 8 * power_of_two(size)
    X = on_grid(rng.standard_normal((k + 1, d)).clip(-4, 4) * size, grid, spec.dtype)
    # Heads tend to score a token with itself: a long query token would be picked. It also hides behind a residual.
    X[-1] = on_grid(X[-1] * SHORT, grid, spec.dtype)
    # Whole multiples of the grid: every move is exactly its coefficient times one direction, in any number format.
    unit = (_MOVE if readout.linear or noise > 1e-12 else _SMALL_MOVE) * size / (_LEVELS * _FINE)
    direction = rng.integers(-_FINE, _FINE + 1, d) * unit
    base = yield Probes(X[None], phase="pilot")
    coefficients = np.zeros((k, 0))
    answers = np.zeros((0, base.shape[1]))
    columns = 8
    while True:
        fresh = rng.integers(-_LEVELS, _LEVELS + 1, (k, columns)).astype(np.float64)
        y = yield _moved_all(X, fresh, direction)
        coefficients, answers = np.hstack([coefficients, fresh]), np.vstack([answers, y])
        response = readout.change(answers, base[0]).T
        if columns == coefficients.shape[1] and same(answers, base[0], noise):
            yield from refuse_silence(spec, noise, rng)
        shown = support(response, coefficients, max(floor_for(noise), 1e-6))
        if shown is not None or coefficients.shape[1] > min(d, spec.outputs or 1) + 4:
            break
        columns = coefficients.shape[1]
    if shown is None:
        return None
    index, worst, next_best = shown
    if worst > 0.1 or next_best < 5 * worst:
        if readout.linear:
            yield from _refuse_bounded_scores(X, base[0], noise)
        return None
    tokens = X[[*index, k]]
    answer = yield Probes(tokens[None], phase="pilot")
    if np.linalg.norm(answer[0] - base[0]) > 1e-3 * np.linalg.norm(base[0]):
        return None
    residual: bool | None = False
    if readout.linear:
        residual = yield from _follows_query(tokens, answer[0])
    if residual is None:
        return None
    return Picks(tokens, answer[0], UNKNOWN, residual, size)


def _refuse_bounded_scores(X: Array, base: Array, noise: float) -> Asking[None]:
    """Heads that do not settle and answers that grow in proportion to the tokens: no length will make them settle."""
    y = yield Probes(np.stack([X / 4, X / 16]), phase="pilot")
    far, near = base - y[0], y[0] - y[1]
    if np.linalg.norm(far - 4 * near) < max(SAME, LOUD * noise) * np.linalg.norm(far):
        raise ModelMismatch(
            "answers grow in proportion to long tokens and yet no head settles on single ones: scores do not grow with "
            "the tokens (a soft cap, QK-norm), or a head has none (W = 0 and c = 0, as in mean pooling). Heads cannot "
            "be told apart by longer tokens."
        )


def _moved_all(X: Array, coefficients: Array, direction: Array) -> LazyProbes:
    """The sequence X (k + 1, d) with its token i displaced by coefficients[i, j] times the direction in probe j."""

    def build(start: int, stop: int) -> Probes:
        tokens = np.repeat(X[None], stop - start, axis=0)
        tokens[:, :-1] += coefficients[:, start:stop].T[:, :, None] * direction
        return Probes(tokens)

    return LazyProbes(coefficients.shape[1], X.size * 8, build, "pilot")


def _follows_query(tokens: Array, base: Array) -> Asking[bool | None]:
    """Whether a residual adds x_N: a query token a little longer picks alike, so only a residual shows it."""
    longer = tokens.copy()
    longer[-1] *= 1 + _TURN
    y = yield Probes(longer[None], phase="pilot")
    step = _TURN * tokens[-1]
    change, size = y[0] - base, 0.1 * float(np.linalg.norm(step))
    if np.linalg.norm(change) < size:
        return False
    if len(change) == len(step) and np.linalg.norm(change - step) < size:
        return True
    return None
