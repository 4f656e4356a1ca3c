"""Did values change? Single tokens show the sum over the heads; near ties tell which head it is."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.dense import gap_of, interval
from unsoftmax.comparing.noise import group
from unsoftmax.comparing.scales import Sample
from unsoftmax.comparing.sparse import TooMany, sparse_vector
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.base import Probes
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.comparison import Finding

PHASE = "locate"


def changed_values(state: Evidence) -> Asking[Finding | None]:
    """A verdict if single tokens are answered differently; None if they are not."""
    singles = [(X, y, sd) for X, y, sd in state.samples if X.shape[1] == 1]
    truth = state.plan.noise.reference.double
    z = np.concatenate([(y - truth(X)) / sd for X, y, sd in singles])
    if statistics.tail(statistics.energy(z)) > state.alpha:
        return None
    entries = yield from _entries(state)
    if entries:
        said = yield from _by_head(state, entries)
        if said is not None:
            return said
    solved = state.heads.count * state.heads.dim <= EXPLAINING.most_values
    if solved:
        said = yield from _solved(state)
        if said is not None:
            return said
    return _dense(state, singles, scores_too=solved)


def _solved(state: Evidence) -> Asking[Finding | None]:
    """All values of all heads by least squares, if the scores are the reference's; None if they are not."""
    heads, rng = state.heads, state.rng
    unknown = heads.count * heads.dim
    known = sum(len(X) for X, _, _ in state.samples if X.shape[1] <= 2)
    wanted = int(EXPLAINING.questions_per_value * unknown) + EXPLAINING.fresh
    if wanted > known:
        n = wanted - known
        X = state.plan.asked.on_grid(sphere(rng, (n, 2, heads.dim)) * state.plan.norm)
        yield from state.ask(X, "delta")
    A, r = _equations(state, np.arange(heads.dim))
    found = np.linalg.lstsq(A, r, rcond=EXPLAINING.rounding_cut)[0]
    if not (yield from _verified(state, np.arange(heads.dim), A, found)):
        return None
    change = found.reshape(heads.count, heads.dim)
    sizes = np.linalg.norm(change, axis=1)
    which = tuple(int(h) for h in np.flatnonzero(sizes > 1e-3 * sizes.max()))
    relative = float(np.linalg.norm(change) / np.linalg.norm(heads.P[:, 0]))
    where = "" if heads.count == 1 else f" of head {', '.join(map(str, which))}"
    words = (
        f"The values{where} changed by {relative:.2g} of their size; the scores are the reference's as far as rounding "
        "shows."
    )
    return state.base.said(
        "values", words, heads=which, evidence={"values": {"relative": relative}}, changes=_clear(A, change)
    )


def _equations(state: Evidence, index: Array, last: int = 0) -> tuple[Array, Array]:
    """Rows from changes of v at `index` of all heads to standardised residuals, and these; of the `last` samples."""
    heads, truth = state.heads, state.plan.noise.reference.double
    lhs, rhs = [], []
    for X, y, sd in state.samples[-last:]:
        if X.shape[1] <= 2:
            mixed = (heads.weights(X).transpose(1, 0, 2) @ X)[:, :, index]
            lhs.append(mixed.reshape(len(X), -1) / sd[:, None])
            rhs.append((y - truth(X)) / sd)
    return np.vstack(lhs), np.concatenate(rhs)


def _entries(state: Evidence) -> Asking[dict[int, float] | None]:
    """Entries of the sum of all changes of v, if they are few."""
    heads, left = state.heads, [EXPLAINING.entry_value_queries]
    norm = float(np.linalg.norm(state.samples[1][0], axis=2).mean())

    def ask(weights: Array) -> Asking[tuple[float, float]]:
        if left[0] < 1:
            raise TooMany
        left[0] -= 1
        scale = float(np.linalg.norm(weights)) / norm
        X = state.plan.asked.on_grid((weights / scale)[None, None])
        made = group(PHASE, X, state.plan.noise, state.plan.constant, state.rng)
        y = yield Probes(X, phase=PHASE)
        state.samples.append((X, y, made.sd))
        return float(made.residual(y)[0]) * scale, float(made.sd[0]) * scale

    try:
        return (yield from sparse_vector(ask, heads.dim, state.rng))
    except TooMany:
        return None


def _verified(state: Evidence, index: Array, A: Array, found: Array) -> Asking[bool]:
    """Whether changes of v explain fresh pairs to rounding: single tokens, which they fit, say nothing of scores."""
    X = state.plan.asked.on_grid(sphere(state.rng, (EXPLAINING.fresh, 2, state.heads.dim)) * state.plan.norm)
    yield from state.ask(X, "verify")
    B, s = _equations(state, index, last=1)
    inherited = np.linalg.norm(B @ np.linalg.pinv(A, rcond=EXPLAINING.rounding_cut), axis=1)
    z = (s - B @ found) / np.sqrt(1 + inherited**2)
    left = float(np.sqrt(np.mean(z**2)))
    explained = left <= min(EXPLAINING.explained_values, EXPLAINING.left_of_residual * float(np.sqrt(np.mean(s**2))))
    state.left = left if explained else None
    return explained


def _by_head(state: Evidence, entries: dict[int, float]) -> Asking[Finding | None]:
    """Attribute entries to heads by least squares on everything asked; None if that does not explain the answers."""
    heads = state.heads
    index = sorted(entries)
    A, r = _equations(state, np.array(index))
    found = np.linalg.lstsq(A, r, rcond=EXPLAINING.rounding_cut)[0]
    if not (yield from _verified(state, np.array(index), A, found)):
        return None
    change = np.zeros((heads.count, heads.dim))
    change[:, index] = found.reshape(heads.count, len(index))
    sizes = np.linalg.norm(change, axis=1)
    which = tuple(int(h) for h in np.flatnonzero(sizes > 1e-3 * sizes.max()))
    shown = ", ".join(f"v[{j}] by {entries[j]:.3g}" for j in index[:4])
    where = "" if heads.count == 1 else f" of head {', '.join(map(str, which))}"
    words = f"Values{where} changed in {len(index)} {'entry' if len(index) == 1 else 'entries'}: {shown}."
    facts = {"value entries": [[h, j, float(change[h, j])] for h in which for j in index]}
    return state.base.said("values", words, heads=which, evidence=facts, changes=_clear(A, change))


def _clear(A: Array, change: Array) -> dict[str, Array]:
    """The change of v (H, d), if it stands well above what rounding leaves in it."""
    error = float(np.linalg.norm(np.linalg.pinv(A, rcond=EXPLAINING.rounding_cut)))
    return {"v": change} if error <= EXPLAINING.left_of_residual * float(np.linalg.norm(change)) else {}


def _dense(state: Evidence, singles: list[Sample], *, scores_too: bool) -> Finding:
    """Values changed, alone or with the scores (`scores_too`: that is known), by how much."""
    heads = state.heads
    truth = state.plan.noise.reference.double
    X, y, sd = (np.concatenate([part[i] for part in singles]) for i in range(3))
    gap = gap_of(y, truth(X))
    lengths = (X[:, 0] ** 2).sum(axis=1)
    size = interval((y - truth(X)) ** 2 * heads.dim / lengths, sd**2 * heads.dim / lengths,
                    float(np.linalg.norm(heads.P[:, 0].sum(axis=0))) or 1.0)  # fmt: skip
    facts: dict[str, object] = {"values": size.facts(), "relative difference of answers": gap.plain}
    if gap.scaled_only:
        return state.base.said("dense", gap.words, evidence=facts)
    if gap.plain > EXPLAINING.other_model:
        words = f"The target is another model: single tokens are answered {gap.plain:.2g} of their size away."
        return state.base.said("different", words, evidence=facts)
    T, y_ties, _ = state.samples[0]
    mixed = np.linalg.norm((heads.weights(T).transpose(1, 0, 2) @ T), axis=2).max(axis=1)
    from_values = size.high * float(np.linalg.norm(heads.P[:, 0].sum(axis=0))) * mixed / math.sqrt(heads.dim)
    seen = float(np.sqrt(np.mean((y_ties - truth(T)) ** 2)))
    if scores_too or seen > EXPLAINING.scores_too * float(np.sqrt(np.mean(from_values**2))):
        words = (
            f"Values and scores changed, the values by {size.estimate:.2g} of their size ({size.low:.2g} to "
            f"{size.high:.2g}); neither alone explains the answers."
        )
        return state.base.said("dense", words, evidence=facts)
    words = f"The values changed by {size.estimate:.2g} of their size ({size.low:.2g} to {size.high:.2g})."
    return state.base.said("values", words, evidence=facts)
