"""Where a layer with vector answers changed: scores of which heads, values, by low rank or everywhere.

Which stored matrix a low-rank change of scores is in: keys or queries.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.comparing import statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.dense import Gap, Size, gap_of, interval, sized_scores, standing
from unsoftmax.comparing.designs import SINGLES
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.layer_scores import low_rank_scores
from unsoftmax.comparing.layer_values import changed_projection
from unsoftmax.comparing.reading import Reading, read_all
from unsoftmax.comparing.repeats import Doubted, repeats
from unsoftmax.comparing.state import Evidence
from unsoftmax.comparing.stored import changed_arrays, small
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.results.comparison import Finding, Verdict


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
    if left_q <= EXPLAINING.outside_space and left_k <= EXPLAINING.outside_space:
        of_q = np.linalg.matrix_rank(dQ.reshape(-1, heads.dim), tol=EXPLAINING.outside_space * np.linalg.norm(dQ))
        of_k = np.linalg.matrix_rank(dK.reshape(-1, heads.dim), tol=EXPLAINING.outside_space * np.linalg.norm(dK))
        if of_q == of_k:
            return "K or Q", {}
        return ("Q", {"Q": dQ}) if of_q < of_k else ("K", {"K": dK})
    if left_q <= EXPLAINING.outside_space:
        return "Q", {"Q": dQ}
    return ("K", {"K": dK}) if left_k <= EXPLAINING.outside_space else ("K and Q", {})


def localise_layer(state: Evidence) -> Asking[Finding]:
    """Place the change in the scores or values of a layer's heads."""
    heads = state.heads
    if 2 * heads.count > len(heads.constant):
        words = f"The layer differs; its {len(heads.constant)} outputs are too few to tell {heads.count} heads apart."
        return state.base.said("unexplained", words)
    gap, values = _gap(state), (yield from _values_differ(state))
    if gap.plain <= EXPLAINING.fitted_up_to and small(state.plan.noise.reference):
        said = yield from changed_arrays(state)
        if said is not None:
            return said
    if gap.plain <= EXPLAINING.other_model:
        said = yield from (changed_projection(state) if values else _searched(state))
        if said is not None:
            return said
    return (yield from _dense(state, gap, values=values))


def _searched(state: Evidence) -> Asking[Finding | None]:
    """Low rank of the scores, by questions made for it."""
    found = _changed_heads(state, _readings(state))
    delta = (yield from low_rank_scores(state, found)) if found else None
    return None if delta is None else _low_rank(state, delta)


def _readings(state: Evidence) -> Reading:
    pairs = [part for part in state.samples if part[0].shape[1] == 2]
    X, y, sd = (np.concatenate([part[i] for part in pairs]) for i in range(3))
    return read_all(state.heads, X, y, sd)


def _changed_heads(state: Evidence, read: Reading) -> list[int]:
    seen = [np.isfinite(sd) for sd in read.sd]
    (found,) = standing([[(D / sd)[use] for D, sd, use in zip(read.D, read.sd, seen, strict=True)]], state.alpha)
    return found


def _singles(state: Evidence) -> tuple[Array, Array, Array]:
    parts = [part for part in state.samples if part[0].shape[1] == 1]
    return tuple(np.concatenate([part[i] for part in parts]) for i in range(3))  # type: ignore[return-value]


def _values_differ(state: Evidence) -> Asking[bool]:
    """Whether single tokens differ: by more than rounding of unknown biases may leave, or where nothing else does,
    again on nearby ones. The constant of layers whose scores alone had changed was said to have."""
    X, y, sd = _singles(state)
    made = state.plan
    z = (y - made.noise.reference.double(X)) / sd
    if min(statistics.tail(statistics.energy(z)), statistics.tail_of_one_output(z)) >= state.alpha:
        return False
    if float(np.sqrt(np.mean(z**2))) > COMPARING.unmodelled:
        return True
    ties, answers, level = state.samples[0]
    if float(np.sqrt(np.mean((made.noise.residual(ties, answers) / level) ** 2))) > COMPARING.unmodelled:
        return False
    n, enough = COMPARING.first_repeats, float(-np.log(state.alpha))
    item = Doubted(SINGLES, X[:n], y[:n], z[:n], np.maximum(sd[:n], 1e-150))
    again = yield from repeats([item], made.noise.residual, None, made.asked, enough, state.rng)
    return again.log_wealth >= enough


def _gap(state: Evidence) -> Gap:
    """Relative difference of what the heads write, on near ties and on single tokens: the larger."""
    truth, gaps = state.plan.noise.reference.double, []
    for X, y, _ in (state.samples[0], state.samples[1]):
        passed = X[:, -1] if state.heads.residual else 0
        gaps.append(gap_of(y - passed, truth(X) - passed))
    return max(gaps, key=lambda gap: gap.plain)


def _low_rank(state: Evidence, delta: dict[int, tuple[Array, Array]]) -> Finding:
    heads = state.heads
    change = np.zeros_like(heads.W)
    for h, (U, M) in delta.items():
        change[h] = U @ M
    matrix, changes = named_factors(heads, change)
    rank = max(U.shape[1] for U, _ in delta.values())
    relative = float(np.linalg.norm(change) / np.linalg.norm(heads.W))
    where = ", ".join(map(str, delta))
    words = f"{matrix} changed by rank {rank} (heads {where}): {relative:.2g} of the scores' |W|."
    facts = {
        "matrix": matrix,
        "relative change": relative,
        "ranks": {str(h): U.shape[1] for h, (U, _) in delta.items()},
    }
    return state.base.said(
        "low rank", words, heads=tuple(delta), delta=change, rank=rank, changes=changes, evidence=facts
    )


def _dense(state: Evidence, gap: Gap, *, values: bool) -> Asking[Finding]:
    """Sizes of the changes with their intervals, by head for the scores."""
    heads = state.heads
    facts: dict[str, object] = {"relative difference of answers": gap.plain}
    if gap.scaled_only:
        return state.base.said("dense", gap.words, evidence=facts)
    if gap.plain > EXPLAINING.other_model:
        said = f"The target is another layer: what it writes is {gap.plain:.2g} of its size away from the reference's."
        return state.base.said("different", said, evidence=facts)
    words, found, moved, unseen = [], [], [], ""
    if 2 * heads.count < heads.dim - 2:
        sized = yield from sized_scores(state, along=not values)
        found, moved = sized.changed, sized.moved
        sizes = {h: size if h in found else replace(size, low=0.0) for h, size in sized.scores.items()}
        facts["scores"] = {str(h): size.facts() for h, size in sizes.items() if found}
        facts["key offsets"] = {str(h): sized.offsets[h].facts() for h in sorted({*found, *moved})}
        beside = " beside the reference's own key directions" if values else ""
        if found:
            low, high = _ends([sized.scores[h] for h in found])
            words.append(f"the scores of {len(found)} of {heads.count} heads (by {low:.2g} to {high:.2g} of |W|)")
        if moved:
            words.append(f"the key offsets c of {len(moved)} of {heads.count} heads")
        most = max((size.high for h, size in sizes.items() if h not in found), default=0.0)
        if found and most:
            unseen = f"; those of the others by less than {most:.1g} of |W|{beside}, if at all"
        elif not found:
            facts["scores at most"] = most
            unseen = f"; the scores by less than {most:.1g} of |W|{beside}, if at all"
    elif not values:
        words.append("the scores")
    if values:
        size = _size_of_values(state, heads)
        facts["values"] = size.facts()
        words.append(
            f"the values (by {size.low:.2g} to {size.high:.2g} of their size)"
            if size.low > EXPLAINING.unchanged_values
            else "the constant"
        )
    what = " and ".join(words) or "the layer"
    verdict: Verdict = "values" if values and not (found or moved) and "scores" in facts else "dense"
    tried = "no low rank and no few entries of one matrix were found to explain it"
    said = f"{what[0].upper()}{what[1:]} changed{unseen}; {tried}."
    return state.base.said(verdict, said, heads=tuple(sorted({*found, *moved})) or None, evidence=facts)


def _ends(sizes: list[Size]) -> tuple[float, float]:
    return min(size.low for size in sizes), max(size.high for size in sizes)


def _size_of_values(state: Evidence, heads: Heads) -> Size:
    """|dM| / |M| for M = sum_h P_h, from single tokens and their partners: a changed constant cancels between them."""
    truth = state.plan.noise.reference.double
    parts = [part for part in state.samples if part[0].shape[1] == 1]
    one, more, turned = parts[:3]
    X, r = np.concatenate([one[0], more[0]]) - turned[0], np.concatenate([one[1], more[1]]) - turned[1]
    r = r - (truth(np.concatenate([one[0], more[0]])) - truth(turned[0]))
    noise = np.concatenate([one[2], more[2]]) ** 2 + turned[2] ** 2
    scale = heads.dim / (X[:, 0] ** 2).sum(axis=1)
    norm = float(np.linalg.norm(heads.P.sum(axis=0))) or 1.0
    return interval((r**2).sum(axis=1) * scale, noise.sum(axis=1) * scale, norm)
