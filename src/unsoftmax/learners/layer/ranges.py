"""Where each head writes: the range of P_h from moves of the one token the head has picked, and P_h itself.

Theory: docs/theory/attention-layer.md, "A real layer", ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import announced
from unsoftmax.learners.layer.constants import LAYER
from unsoftmax.learners.layer.picks import Picks
from unsoftmax.learners.layer.presets import Preset
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid
from unsoftmax.solvers.mixture import independent, lacking, split_rows, split_values
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import Range, column_range, floor_for, solve_orthogonal
from unsoftmax.spec import OracleSpec


class Shared(Exception):
    """Two heads picked the same token, or a head went unseen: the scan has to be drawn again."""


@dataclass(frozen=True, eq=False)
class Heads:
    """What the heads write: P_h = O_h Z_h with orthonormal O_h (outputs, s) and Z_h (s, d), one pair per head.

    `error`: what the noise of the answers can have left in them, relative.
    """

    O: list[Array]
    Z: list[Array]
    error: float = 0.0

    @property
    def smallest(self) -> int:
        """Smallest rank of a head."""
        return min(o.shape[1] for o in self.O)

    @property
    def slots(self) -> int:
        """Tokens of one query whose weights can be told apart for all heads at once."""
        return max(1, min(self.smallest, len(self.O[0]) // len(self.O)))

    def written(self, E: Array) -> Array:
        """G (outputs, H m): head by head what a unit of attention on each displacement of E (m, d) writes."""
        return np.hstack([o @ (z @ E.T) for o, z in zip(self.O, self.Z, strict=True)])


def heads_of(P: Array, left: Array) -> Heads:
    """Heads from what each writes, P (H, outputs, d), of which `left` (H,) is what noise has left: directions beside
    it are none. Weights are read through P: its error counts as often as heads are hard to tell in one answer."""
    O, Z = [], []
    for p, error in zip(P, left, strict=True):
        U, sizes, Vt = svd(p, full_matrices=False)
        rank = max(1, int((sizes > CORE.stated_over_rounding * error).sum()))
        O.append(U[:, :rank])
        Z.append(sizes[:rank, None] * Vt[:rank])
    return weighed(Heads(O, Z, float((left / np.linalg.norm(P, axis=(1, 2))).max())), len(P[0]))


def weighed(heads: Heads, room: int) -> Heads:
    """Heads whose value maps are known one by one: their error counts as often as they are hard to tell in one answer,
    of whose numbers `room` may show weights."""
    worst, tokens = heads.error, max(1, min(heads.slots, room // len(heads.O)))
    one = np.linalg.svd(heads.written(np.eye(heads.Z[0].shape[1])[:tokens]), compute_uv=False)
    return replace(heads, error=worst * float(one[0] / max(one[-1], 1e-300)))


def steps(n: int, reach: float, spec: OracleSpec, picks: Picks, rng: np.random.Generator, spare_bits: int = 0) -> Array:
    """n random displacements (n, d) inside the reach, exact beside the picked tokens; with bits to spare for sums."""
    largest = 2.0 ** (1 + spare_bits) * float(np.abs(picks.tokens).max())
    return on_grid(rng.standard_normal((n, spec.dim)).clip(-3, 3) * reach, largest, spec.dtype)


def all_directions(picks: Picks, spec: OracleSpec, rng: np.random.Generator, spare_bits: int = 0) -> Array:
    """d displacements (d, d) inside the reach, orthogonal but for the grid they lie on."""
    largest = 2.0 ** (1 + spare_bits) * float(np.abs(picks.tokens).max())
    return on_grid(orthonormal(rng, spec.dim) * (picks.reach * np.sqrt(spec.dim) * 0.7), largest, spec.dtype)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Orthonormal bases O_h (outputs, s) with the moves (n, d) and responses P_h a (outputs, n) they were read from."""

    O: list[Array]
    moves: list[Array]
    responses: list[Array]


def read_ranges(
    picks: Picks,
    total: int,
    noise: float,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
    unequal: bool = False,
) -> Asking[Ranges]:
    """Where each head writes; its rank s is found at the first head.

    A token of larger rank than the first serves two heads, and heads that fall short of the rank `total` of the sum of
    their maps are not all: Shared is raised, unless heads may be `unequal`.
    """
    H, outputs = picks.heads, int(spec.outputs or 1)
    guess = max(1, min(outputs // H, spec.dim))
    asker = _Asker(picks, noise, spec, rng)
    ((a, R),) = yield from asker.move([0], preset.range_probes(guess), picks.reach, "main")
    first = moved_range(R, noise, None)
    if not first.clear:
        a, R, first = yield from asker.again(0, preset.range_probes(guess), None)
    if not first.clear:
        a, R, first = yield from asker.grown(0, a, R)
    s = first.rank
    if s == 0:
        raise ModelMismatch("a token that changes the answer does not when moved alone; attention cannot do that.")
    if not unequal and (H * s < total or (H > 1 and H * s > max(outputs, spec.dim))):
        raise Shared
    found = Ranges([first.basis], [a], [R])
    n = preset.range_probes(s)
    # Only now is it known what the rest takes: a budget that does not suffice should hear of it here. Of heads of
    # unequal rank one alone tells nothing of the others.
    ahead = 0 if unequal else preset.least_queries(spec.dim, H, s, outputs) - n
    rest = yield from announced(asker.move(list(range(1, H)), n, picks.reach, "main"), ahead)
    for h, (a, R) in enumerate(rest, start=1):
        rank = None if unequal else s
        seen = moved_range(R, noise, rank)
        if not seen.clear:
            a, R, seen = yield from asker.again(h, n, rank)
        if not seen.clear and not unequal:
            raise Shared
        if not seen.clear:
            a, R, seen = yield from asker.grown(h, a, R)
        found.O.append(seen.basis)
        found.moves.append(a)
        found.responses.append(R)
    return found


def moved_range(R: Array, noise: float, rank: int | None) -> Range:
    """Range of the responses R (outputs, n), not clear if some of the moves left the pick.

    All moves that leave it answer alike, so several of them need not show in the rank; but they jump to another token,
    many times farther than a move inside the reach.
    """
    seen = column_range(R, noise, rank=rank)
    sizes = np.linalg.norm(R, axis=0)
    jumped = len(sizes) >= LAYER.moves_for_a_median and float(sizes.max()) > LAYER.response_over_median * float(
        np.median(sizes)
    )
    return replace(seen, clear=False) if jumped else seen


@dataclass(frozen=True, eq=False)
class _Asker:
    """Moves of single picked tokens (n, d) and the responses P_h a, as matrices (outputs, n)."""

    picks: Picks
    noise: float
    spec: OracleSpec
    rng: np.random.Generator

    def move(self, heads: list[int], n: int, reach: float, phase: str) -> Asking[list[tuple[Array, Array]]]:
        if not heads:
            return []
        moves = [steps(n, reach, self.spec, self.picks, self.rng) for _ in heads]
        tokens = np.concatenate([self.picks.moved(h, a, phase).tokens for h, a in zip(heads, moves, strict=True)])
        y = (yield Probes(tokens, phase=phase)) - self.picks.answer
        return [(a, part.T) for a, part in zip(moves, np.split(y, len(heads)), strict=True)]

    def again(self, head: int, n: int, rank: int | None) -> Asking[tuple[Array, Array, Range]]:
        """A few moves may have left the pick: with moves a quarter as long only a shared token has too large a rank."""
        ((a, R),) = yield from self.move([head], n, self.picks.reach / 4, "repair")
        return a, R, moved_range(R, 4 * self.noise, rank)

    def grown(self, head: int, a: Array, R: Array) -> Asking[tuple[Array, Array, Range]]:
        """Add probes until the spectrum has a clear gap; the ones given were made at the same short reach."""
        while True:
            seen = column_range(R, 4 * self.noise)
            if seen.clear:
                return a, R, seen
            if R.shape[1] > min(R.shape[0], self.spec.dim) + 8:
                raise ModelMismatch(
                    "the responses to one moved token have no clear rank: the answers are noisier than one-token "
                    "queries show, or the target is not attention. Nothing can be separated."
                )
            ((more, S),) = yield from self.move([head], 4, self.picks.reach / 4, "repair")
            a, R = np.vstack([a, more]), np.hstack([R, S])


def read_values(
    ranges: Ranges, M: Array, picks: Picks, noise: float, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[Heads]:
    """Z_h from sum_h O_h Z_h = M (outputs, d); with groups, all but the last group are measured on their own."""
    O = ranges.O
    groups = _groups(O, preset.groups)
    Z: dict[int, Array] = {}
    rest = M
    for group in groups[:-1]:
        whole = np.stack([all_directions(picks, spec, rng) for _ in group])
        tokens = np.repeat(picks.tokens[None], spec.dim, axis=0)
        tokens[:, group] += whole.transpose(1, 0, 2)
        R = ((yield Probes(tokens)) - picks.answer).T
        coordinates = np.linalg.lstsq(np.hstack([O[h] for h in group]), R, rcond=None)[0]
        for h, a, part in zip(group, whole, split_rows(coordinates, [O[h] for h in group]), strict=True):
            Z[h] = solve_orthogonal(a, part.T).T
            rest = rest - O[h] @ Z[h]
    last = groups[-1]
    moves, responses = [ranges.moves[h] for h in last], [ranges.responses[h] for h in last]
    index, missing = lacking([O[h] for h in last], moves)
    if missing:
        more = yield from _Asker(picks, noise, spec, rng).move([last[index]], missing, picks.reach / 4, "repair")
        moves[index] = np.vstack([moves[index], more[0][0]])
        responses[index] = np.hstack([responses[index], more[0][1]])
    found = split_values([O[h] for h in last], rest, moves, responses)
    if found.missing * np.linalg.norm(rest) / np.linalg.norm(M) > 10 * floor_for(noise):
        raise Shared
    Z |= dict(zip(last, found.Z, strict=True))
    return Heads(O, [Z[h] for h in range(len(O))], _error(ranges, picks, noise) * found.gain)


def _error(ranges: Ranges, picks: Picks, noise: float) -> float:
    """Angle by which the noise of the answers can turn a range: it stands against the range's weakest response."""
    worst = 0.0
    for o, R in zip(ranges.O, ranges.responses, strict=True):
        weakest = np.linalg.svd(R, compute_uv=False)[o.shape[1] - 1]
        worst = max(worst, np.linalg.norm(picks.answer) * np.sqrt(1 + R.shape[1] / len(R)) / weakest)
    return float(noise * worst)


def _groups(O: list[Array], wanted: int) -> list[list[int]]:
    """Heads in `wanted` groups of equal size whose ranges are independent, more groups where they are not.

    Heads that write into each other's ranges, as those of mixed attention weights do (`a_h + a_(h-1)` is a head of
    twice the rank), are read in groups of others: each joins the first group that it is clear of, so that a ring of
    neighbours takes two or three.
    """
    outputs, H = len(O[0]), len(O)
    for n in range(min(wanted, H), H + 1):
        groups = [list(map(int, part)) for part in np.array_split(np.arange(H), n)]
        if all(sum(O[h].shape[1] for h in group) <= outputs for group in groups):
            break
    if all(independent([O[h] for h in group]) for group in groups):
        return groups
    found: list[list[int]] = []
    for h in range(H):
        home = next((group for group in found if independent([O[g] for g in (*group, h)], most=0)), None)
        if home is None:
            found.append([h])
        else:
            home.append(h)
    return found
