"""Hard attention: among large tokens every head picks one. Which ones, how many, and how far they may move.

Attention that writes nothing: the answer is the last token's alone, and no query shows a head.

Theory: docs/theory/attention-layer.md, "A real layer", scan.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.picks import PLAIN, UNKNOWN, Picks, Readout, measured
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, LazyProbes, Probes
from unsoftmax.probes.scales import on_grid, power_of_two
from unsoftmax.solvers.subspace import floor_for, support
from unsoftmax.spec import OracleSpec


def same(answers: Array, base: Array, noise: float) -> bool:
    """Whether the answers (n, outputs) are all `base` (outputs,), as far as noise lets it be seen."""
    return float(np.abs(answers - base).max()) <= LAYER.equal_within * noise * float(np.abs(base).max())


def refuse_silence(spec: OracleSpec, noise: float, rng: np.random.Generator) -> Asking[None]:
    """Ask one last token beside others, at two sizes: where none of them changes the answer, there is nothing to learn.

    Six queries. Heads that settle on the last token, however long the others are, answer to short ones.
    """
    for size in LAYER.token_sizes_asked:
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


def ample(spec: OracleSpec) -> bool:
    """Whether tokens may be as long as a scan would like them."""
    return _largest(spec) >= LAYER.first_token_size


def _largest(spec: OracleSpec) -> float:
    """Deviation of the coordinates of tokens that stay inside the domain."""
    return float(LAYER.rms_over_limit * spec.domain.norm_limit / np.sqrt(spec.dim))


def scan(
    spec: OracleSpec, noise: float, least: int, wanted: int, rng: np.random.Generator, readout: Readout = PLAIN
) -> Asking[Picks]:
    """The widest of `wanted` scans that show the largest number of heads seen, at least `least` if any does."""
    largest = _largest(spec)
    size = min(LAYER.first_token_size, largest)
    found: list[Picks] = []
    fruitless = 0
    for _ in range(LAYER.sequences_drawn):
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
        doubtful = bool(int(spec.outputs or 1) % picks.heads) and len(alike) < LAYER.scans_that_agree
        if picks.heads < most or doubtful:
            continue
        enough, patience = (LAYER.enough_reach, 1) if readout.linear else (LAYER.enough_turn_reach, 3)
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
        "no sequence of large tokens made the heads settle on single tokens: scores that do not grow with the tokens "
        "(a soft cap, QK-norm), a head without preference (W = 0 and c = 0), heads that always share a token, noise "
        "beyond the rounding of the answers, or a target that is not attention. Nothing can be separated."
    )


def _one_scan(
    spec: OracleSpec, noise: float, size: float, rng: np.random.Generator, readout: Readout
) -> Asking[Picks | None]:
    """Picks of one random sequence, their reach unknown; None if the heads did not settle."""
    d = spec.dim
    k = int(min(LAYER.scan_tokens, spec.domain.length_limit - 1))
    size, grid = power_of_two(size), 8 * power_of_two(size)
    X = on_grid(rng.standard_normal((k + 1, d)).clip(-4, 4) * size, grid, spec.dtype)
    # Heads tend to score a token with itself: a long query token would be picked. It also hides behind a residual.
    X[-1] = on_grid(X[-1] * LAYER.query_over_tokens, grid, spec.dtype)
    # Whole multiples of the grid: every move is exactly its coefficient times one direction, in any number format.
    unit = (
        (LAYER.largest_move if readout.linear or noise > SHORT_FORMAT else LAYER.turn_move)
        * size
        / (LAYER.levels_of_moves * LAYER.levels_of_direction)
    )
    direction = rng.integers(-LAYER.levels_of_direction, LAYER.levels_of_direction + 1, d) * unit
    base = yield Probes(X[None], phase="pilot")
    coefficients = np.zeros((k, 0))
    answers = np.zeros((0, base.shape[1]))
    columns = 8
    while True:
        fresh = rng.integers(-LAYER.levels_of_moves, LAYER.levels_of_moves + 1, (k, columns)).astype(np.float64)
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
            yield from _refuse_bounded_scores(X, base[0], noise, spec.domain.length_limit)
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


def _refuse_bounded_scores(X: Array, base: Array, noise: float, longest: float) -> Asking[None]:
    """Heads that do not settle and answers that grow in proportion to the tokens: no length will make them settle.

    Heads that have settled answer in proportion too, but do not heed copies of tokens; that moves took one of them to
    another token was chance, and ends with another sequence.
    """
    y = yield Probes(np.stack([X / 4, X / 16]), phase="pilot")
    far, near = base - y[0], y[0] - y[1]
    if np.linalg.norm(far - 4 * near) >= max(LAYER.same_answer, CORE.loud * noise) * np.linalg.norm(far):
        return
    half = len(X) // 2
    settled = False
    if len(X) + half <= longest:
        copied = yield Probes(X[None], np.repeat([2, 1], [half, len(X) - half])[None], phase="pilot")
        settled = same(copied, base, noise)
    if not settled:
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
    longer[-1] *= 1 + LAYER.query_lengthened_by
    y = yield Probes(longer[None], phase="pilot")
    step = LAYER.query_lengthened_by * tokens[-1]
    change, size = y[0] - base, 0.1 * float(np.linalg.norm(step))
    if np.linalg.norm(change) < size:
        return False
    if len(change) == len(step) and np.linalg.norm(change - step) < size:
        return True
    return None
