"""Does the target differ from the reference at all? Repeated questions, near ties, single tokens, longer sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.comparing import designs, statistics
from unsoftmax.comparing.constants import COMPARING
from unsoftmax.comparing.designs import LONGER, OPEN, SINGLES, TIES, Asked
from unsoftmax.comparing.noise import Group, Noise, group
from unsoftmax.comparing.power import detectable_changes
from unsoftmax.comparing.references import Reference
from unsoftmax.comparing.repeats import Doubted, Repeats, repeats
from unsoftmax.errors import BudgetExceeded
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Probes
from unsoftmax.spec import OracleSpec

PHASE = "detect"


@dataclass(frozen=True, eq=False)
class Plan:
    """The questions, made before the first is asked; `detectable` by kind of change."""

    asked: Asked
    noise: Noise
    norm: float
    repeated: Group
    groups: tuple[Group, ...]
    constant: float
    detectable: dict[str, float]
    copies: int = 1
    usual: float = 1.0
    """Token norm at which scores are of order one."""
    decimals: float = 0.0
    """Rounding error of answers that were all given to the same few digits after the point; 0 if they were not."""

    @property
    def worst(self) -> float:
        """The largest of the detectable changes of weights that show in answers at all."""
        return _worst(self.detectable)

    @property
    def queries(self) -> int:
        return 3 * len(self.repeated.X) + sum(len(group.X) for group in self.groups)

    def louder(self, excess: dict[str, float], alpha: float, rng: np.random.Generator) -> Plan:
        """The same questions of a target that rounds so many times as much, by kind."""
        groups = tuple(replace(g, sd=g.sd * excess.get(_kind(g), 1.0)) for g in self.groups)
        ties = next(g for g in groups if g.name == TIES)
        changes = detectable_changes(self.noise.reference, ties, alpha, rng) if TIES in excess else self.detectable
        noise = replace(self.noise, excess=max(excess.values()))
        return replace(self, noise=noise, groups=groups, detectable=changes)

    def given_to(self, error: float, alpha: float, rng: np.random.Generator) -> Plan:
        """The same questions, with answers that are rounded by that much besides."""
        groups = tuple(g.rounded(error) for g in self.groups)
        ties = next(g for g in groups if g.name == TIES)
        changes = detectable_changes(self.noise.reference, ties, alpha, rng)
        noise = replace(self.noise, tolerance=error)
        return replace(
            self, noise=noise, repeated=self.repeated.rounded(error), groups=groups, detectable=changes, decimals=error
        )


@dataclass(frozen=True, eq=False)
class Detection:
    """What was asked and answered; `complete` is False where the budget ended first."""

    plan: Plan
    answers: dict[str, Array]
    first: Array | None = None
    steady: float = 1.0
    drift: float = 1.0
    complete: bool = True
    tails: dict[str, float] = field(default_factory=dict)
    again: Repeats | None = None
    """What nearby questions have shown, where the difference is one that rounding may leave."""

    @property
    def p_value(self) -> float:
        """Smallest tail, corrected for the number of tests; where nearby questions were asked they must show it too."""
        if not self.tails:
            return 1.0
        modelled = min(1.0, len(self.tails) * self._share * min(self.tails.values()))
        return modelled if self.again is None else max(modelled, math.exp(min(0.0, -self.again.log_wealth)))

    @property
    def _share(self) -> float:
        return 1 / (1 - COMPARING.repeats_share)

    @property
    def log_e_value(self) -> float:
        energies = [statistics.energy(g.z(self.answers[g.name])) for g in self.groups]
        modelled = statistics.log_e_value(np.concatenate(energies)) if energies else 0.0
        return modelled if self.again is None else min(modelled, self.again.log_wealth)

    def doubted(self, alpha: float) -> list[tuple[Group, Array]]:
        """Groups whose answers differ by more than the noise modelled, if by no more than unknown biases may leave."""
        every = [(g, self.answers[g.name]) for g in self.groups]
        every += [(self.plan.repeated, self.first)] if self.first is not None else []
        level = alpha / (len(self.tails) * self._share) if self.tails else 0.0
        kinds = {name.split(",")[0] for name, tail in self.tails.items() if tail <= level}
        found = [(g, y) for g, y in every if _kind(g) in kinds]
        sizes = [float(np.sqrt(np.mean(g.z(y) ** 2))) for g, y in found]
        return found if max(sizes, default=math.inf) <= COMPARING.unmodelled else []

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups that were answered."""
        return tuple(g for g in self.plan.groups if g.name in self.answers)

    def stochastic(self, alpha: float) -> str | None:
        """ "random" or "drifting" if the same questions were answered differently."""
        if self.steady <= COMPARING.repeats_share * alpha / 2:
            return "random"
        return "drifting" if self.drift <= COMPARING.repeats_share * alpha / 2 else None


def plan(
    reference: Reference,
    spec: OracleSpec,
    arithmetic: str,
    alpha: float,
    smallest: float | None,
    seed: int,
    *,
    whole: bool = True,
) -> Plan:
    """Design everything offline: token norm by predicted power, noise by calibration, number of ties by `smallest`.

    `whole=False` leaves out all but the near ties.
    """
    rng = np.random.default_rng([seed, 0xC09A])
    asked, noise = Asked(spec, arithmetic), Noise(reference, arithmetic, spec.tolerance)
    usual = designs.usual_norm(reference, asked, rng)
    factors: tuple[float, ...] = COMPARING.norm_factors if reference.heads is not None else (1.0,)
    factors += COMPARING.longer_factors if spec.tolerance and reference.heads is not None else ()
    norm, worst = usual, math.inf
    for factor in factors if len(factors) > 1 else ():
        tried = min(usual * factor, spec.domain.with_room)
        sample = group(TIES, designs.near_ties(reference, asked, COMPARING.directions, tried, rng), noise, 1.0, rng)
        seen = _worst(detectable_changes(reference, sample, alpha, rng))
        norm, worst = (tried, seen) if seen < worst else (norm, worst)
    constant = noise.constant(lambda: designs.near_ties(reference, asked, COMPARING.calibrated, norm, rng), rng)
    ties = group(TIES, designs.near_ties(reference, asked, COMPARING.directions, norm, rng), noise, constant, rng)
    changes = detectable_changes(reference, ties, alpha, rng)
    worst = _worst(changes)
    copies = 1
    if smallest is not None and math.isfinite(worst):
        copies = int(np.clip(math.ceil((worst / smallest) ** 2), 1, 16))
        if copies > 1:
            X = np.concatenate([ties.X, *(_copy(ties.X, asked, rng) for _ in range(copies - 1))])
            ties = group(TIES, X, noise, constant, rng)
            changes = detectable_changes(reference, ties, alpha, rng)
    first = designs.open_pairs(reference, asked, COMPARING.repeated, usual, rng)
    apart = noise.constant(
        lambda: designs.open_pairs(reference, asked, COMPARING.calibrated // 4, usual, rng), rng, wide=True
    )
    repeated = group(OPEN, first, noise, max(constant, apart), rng)
    if not whole:
        return Plan(asked, noise, norm, repeated, (ties,), constant, changes, copies, usual)
    single_constant = noise.constant(lambda: designs.singles(asked, 64, usual, rng), rng)
    one = group(SINGLES, designs.singles(asked, COMPARING.single_tokens, usual, rng), noise, single_constant, rng)
    groups = [ties, one]
    bands = designs.longer(reference, asked, usual, rng)
    # Two sequences of a length are too few to measure its rounding by themselves: the worst length counts for all.
    measured = [noise.constant(lambda X=X: X, rng) for X in bands]  # type: ignore[misc]
    long_constant = max([constant, *measured])
    groups += [group(f"{LONGER} {i}", X, noise, long_constant, rng) for i, X in enumerate(bands)]
    return Plan(asked, noise, norm, repeated, tuple(groups), constant, changes, copies, usual)


def _worst(changes: dict[str, float]) -> float:
    return max((size for size in changes.values() if math.isfinite(size)), default=math.inf)


def _copy(X: Array, asked: Asked, rng: np.random.Generator) -> Array:
    """The same directions rescaled, so that rounding is new and the signal is not; a'W b is kept near its tie."""
    if X.dtype.kind in "iu" or X.shape[1] != 2:
        return X.copy()
    nu = np.exp(rng.uniform(-0.35, 0.35, (len(X), 1)))
    b = X[:, 1] * nu
    a = (X[:, 0] - X[:, 1]) / nu
    return asked.on_grid(np.stack([a + b, b], axis=1))


def detect(made: Plan, alpha: float, smallest: float | None, seed: int, *, measured: bool) -> Asking[Detection]:
    """Ask the plan; what the budget allows is used.

    `measured`: a float64 oracle whose first answers are all float32 numbers is judged by float32 rounding.
    """
    answers: dict[str, Array] = {}
    repeated: list[Array] = []
    first = made.repeated
    complete = True
    try:
        repeated.append((yield Probes(first.X, phase=PHASE)))
        repeated.append((yield Probes(first.X, phase=PHASE, again=1)))
        if measured and made.noise.arithmetic == "float64" and written_in(np.concatenate(repeated)) != "float64":
            made = plan(made.noise.reference, made.asked.spec, "float32", alpha, smallest, seed)
            rng, asked = np.random.default_rng([seed, 0xF32]), first.X
            constant = max(made.constant, made.noise.constant(lambda: asked, rng, wide=True))
            first = group(OPEN, asked, made.noise, constant, rng)
        for item in made.groups:
            answers[item.name] = yield Probes(item.X, phase=PHASE)
        repeated.append((yield Probes(first.X, phase=PHASE, again=2)))
    except BudgetExceeded:
        complete = False
    given = [y.ravel() for y in (*repeated, *answers.values())]
    error = decimal_error(np.concatenate(given)) if given and not made.noise.tolerance else 0.0
    if error > float(np.median(next(g.sd for g in made.groups if g.name == TIES))):
        made, first = made.given_to(error, alpha, np.random.default_rng([seed, 0xDEC])), first.rounded(error)
    steady, drift = (_changed(repeated[0], y, first) if y is not None else 1.0 for y in _later(repeated))
    tails = _tails(made, answers)
    if tails:
        tails[OPEN] = statistics.tail(statistics.energy(first.z(repeated[0])))
    made = replace(made, repeated=first)
    seen = Detection(made, answers, repeated[0] if repeated else None, steady, drift, complete, tails)
    return (yield from _held_again(seen, alpha, np.random.default_rng([seed, 0xA6A1])))


def _held_again(seen: Detection, alpha: float, rng: np.random.Generator) -> Asking[Detection]:
    """The same, with nearby questions asked where no noise model can tell a difference from rounding."""
    made = seen.plan
    doubted = seen.doubted(alpha)
    if not doubted or seen.stochastic(alpha) is not None or made.asked.spec.vocabulary is not None:
        return seen
    items = [Doubted(_kind(g), g.X, y, g.z(y), np.maximum(g.sd, 1e-150)) for g, y in doubted]
    heads = made.noise.reference.heads
    try:
        again = yield from repeats(items, made.noise.residual, heads, made.asked, -math.log(alpha), rng)
    except BudgetExceeded:
        return replace(seen, again=Repeats(0.0, {}), complete=False)
    return replace(seen, again=again, plan=made.louder(again.excess, alpha, rng))


def _kind(item: Group) -> str:
    """The kind of sequence that a group is of, as tails are named."""
    return item.name if item.name in (TIES, SINGLES, OPEN) else LONGER


def _later(repeated: list[Array]) -> tuple[Array | None, Array | None]:
    """The second and the third answers to the same questions, as far as they came."""
    return (repeated[1] if len(repeated) > 1 else None), (repeated[2] if len(repeated) > 2 else None)


def _changed(before: Array, after: Array, item: Group) -> float:
    """p-value that two answers to one question differ by rounding alone."""
    return statistics.tail(statistics.energy((after - before) / np.maximum(math.sqrt(2) * item.sd, 1e-300)))


def _tails(made: Plan, answers: dict[str, Array]) -> dict[str, float]:
    """Tails of every kind of sequence, of all outputs together and of the one that differs most."""
    found: dict[str, list[Array]] = {}
    for item in made.groups:
        if item.name in answers:
            found.setdefault(_kind(item), []).append(item.z(answers[item.name]))
    tails = {}
    for name, parts in found.items():
        z = np.concatenate(parts)
        tails[name] = statistics.tail(statistics.energy(z))
        if z.ndim == 2:
            tails[f"{name}, one output"] = statistics.tail_of_one_output(z)
    return tails


def written_in(y: Array) -> str:
    """Number format the answers are written in."""
    unit = rounding_unit(y)
    return "float64" if unit < SHORT_FORMAT else "float32"
