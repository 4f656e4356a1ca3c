"""Is it the model? Held-out records decide, with the rank of J and the test for features that are missing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.fitting.blocks import Blocks
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.copies import cells
from unsoftmax.fitting.directions import Seen, bent, units_of
from unsoftmax.fitting.heads import Heads, HeadsAt
from unsoftmax.fitting.lack_of_fit import Missing, chance, lack_of_fit
from unsoftmax.fitting.noise import Noise
from unsoftmax.fitting.picks import picks_one_token, unbounded
from unsoftmax.fitting.shape import Shape
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim, Status

_UNTESTED = (
    "To this model few of the records differ (tokens without weight, sequences of one token, multiples of one): what "
    "they show is hardly more than what was fitted, so that nothing tests the class. Add records that differ."
)

_ANY = (
    "Another class would agree as well (a chance of {:.1g}): beyond what was fitted, these records differ by little "
    "more than the noise. Add records that differ."
)

_HARDLY = "Records agree to rounding, but hardly show some directions of the parameters: add records."

_ARGMAX = (
    "Every answer is the value of one token: argmax attention, the limit of large W, explains them, so that no answer "
    "shows how large W is."
)


@dataclass(frozen=True, eq=False)
class Judged:
    """The verdict, its claims and notes; `deviation` is what one unit of row noise turned out to be, or more
    where the model is not linear as far as its errors reach."""

    status: Status
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    deviation: float
    limit: float
    """Error, in parameter units, above which a direction is undetermined."""


@dataclass(frozen=True, eq=False)
class Checked:
    """A fit and how it does on records it has not seen. Rows are over their deviations."""

    shape: Shape
    x: Array
    seen: Seen
    train: Array
    held: Array
    leverage: Array
    """(k m,): variance of the fit at held-out rows, in units of the rows' own."""
    freedom: int
    """Fitted numbers beyond the determined unknowns."""
    gap: float
    """Largest error on a held-out record, in units of the answers."""
    spare: int
    """Numbers beyond the determined unknowns, of all records that nearby parameters tell apart."""

    @property
    def spread(self) -> float:
        """Deviation of fitted rows, corrected for the unknowns."""
        return float(np.sqrt((self.train**2).sum() / max(self.freedom, 1)))


def checked(
    problem: Heads, held: Blocks, x: Array, seen: Seen, deviations: tuple[Array, Array], limit: float
) -> Checked:
    """Compare with fitted and held-out records; deviations of both. `limit`: as of `Judged`."""
    train = problem.at(x).residual / deviations[0]
    at = Heads(held, problem.shape).at(x)
    leverage = seen.leverage(at, deviations[1])
    free, gap = len(train) - seen.rank, float(np.abs(at.residual).max())
    spare = _spare((problem.at(x), at), x, deviations, units_of(problem.blocks, problem.shape, x), seen, limit)
    return Checked(problem.shape, x, seen, train, at.residual / deviations[1], leverage, free, gap, spare)


def _spare(
    both: tuple[HeadsAt, HeadsAt],
    x: Array,
    deviations: tuple[Array, Array],
    units: tuple[float, float],
    seen: Seen,
    limit: float,
) -> int:
    """Numbers beyond the determined unknowns, of records that changes of the parameters by `limit` units tell apart.

    Once for all parameters and once for the scores: sequences of one token show values alone, however many there are.
    Where a factor of all scores does not show (W of 0), answers grow as their sequence does, and multiples of one
    sequence say one thing.
    """
    shape, rng = both[0].shape, np.random.default_rng([0, 0xA1])
    rank = shape.freedom - seen.hidden(limit)[0]
    root = 1 if shape.rank is None else 0.5
    sizes = np.repeat([units[0] ** root, units[1]], [shape.scores, shape.values])
    scores = np.arange(len(sizes)) < shape.scores

    def responses(part: Array) -> Array:
        steps = part * rng.standard_normal((FITTING.changes, len(sizes)))
        rows = [np.stack([at.response(s) / d for s in steps], axis=1) for at, d in zip(both, deviations, strict=True)]
        return np.concatenate([each.reshape(-1, shape.outputs * FITTING.changes) for each in rows])

    def left(places: Array, most: int) -> int:
        return (int(cells(places, rng).max()) + 1) * shape.outputs - max(most, 0)

    F = responses(sizes)
    noise = 1 / limit + FITTING.roundings * EPS * float(np.median(np.abs(F)))
    spare = min(left(F / noise, rank), left(responses(sizes * scores) / noise, rank - shape.values))
    warmer = [np.abs(at.response(x * scores) / d).max() for at, d in zip(both, deviations, strict=True)]
    if max(warmer) > noise:
        return spare
    F = responses(sizes * ~scores)
    lengths = np.linalg.norm(F, axis=1, keepdims=True) + 1e-300
    return min(spare, left(F / lengths * (float(np.median(lengths)) / noise), min(rank, shape.values)))


def exact(fit: Checked) -> bool:
    """Whether fitted and held-out records agree to rounding."""
    limit = FITTING.roundings * np.sqrt(1 + fit.leverage)
    return bool((np.abs(fit.train) <= FITTING.roundings).all() and (np.abs(fit.held) <= limit).all() and len(fit.held))


def judge_exact(problem: Heads, fit: Checked, deviations: Array) -> Judged:
    """Held-out records agree to rounding: the model, unless they would with any larger W, or test nothing."""
    foretold = np.sqrt(1 + fit.leverage)
    apart = (np.abs(fit.held) > FITTING.roundings).reshape(-1, fit.shape.outputs).any(axis=1)
    claims = (
        Claim(
            "held-out records",
            FITTING.roundings,
            float(np.abs(fit.held / foretold).max()),
            statement=f"largest gap on {len(fit.held)} numbers nobody fitted, in deviations of float64 rounding and of "
            "what the fit leaves open",
        ),
        pac(fit, "agree to rounding", int(apart.sum())),
    )
    tests = int((FITTING.roundings * EPS * foretold <= FITTING.finest).sum())
    doubts = {
        _UNTESTED: min(fit.spare, tests) < FITTING.fewest,
        _HARDLY: not fit.seen.certain,
        _ARGMAX: unbounded(problem, fit.x, deviations),
    }
    # Where a record is farther off than rounding is by chance, all may be: so much less is known.
    farthest = float(np.abs(fit.train).max())
    limit = FITTING.finest / (farthest if farthest > FITTING.bars else 1.0)
    for doubt, there in doubts.items():
        if there:
            return Judged(Status.SURROGATE, claims[1:], (doubt,), max(fit.spread, 1.0), limit)
    return Judged(Status.RECOVERED, claims, (), max(fit.spread, 1.0), limit)


def judge_noisy(problem: Heads, fit: Checked, noise: Noise, deviations: Array, seed: int) -> Judged:
    """Within the noise and without a missing feature: consistent. Anything else is a surrogate."""
    from scipy.stats import chi2, f  # slow imports, needed at the end of a fit only

    at = problem.at(fit.x)
    missing = lack_of_fit(problem.blocks, fit.x, at, fit.seen, deviations, seed)
    other = chance(problem.blocks, fit.x, fit.shape, fit.seen, deviations, seed)
    z = fit.held / np.sqrt(1 + fit.leverage)
    freedom = max(fit.freedom, 1)
    largest = math.inf
    if noise.source != "none":
        quantile = chi2.ppf(1 - FITTING.chance, freedom) / freedom
        if math.isfinite(noise.freedom):
            quantile = f.ppf(1 - FITTING.chance, freedom, noise.freedom)
        largest = noise.allowed * float(np.sqrt(quantile))
    ratio = float((z**2).mean()) / max(fit.spread**2, 1e-300)
    above = float(f.ppf(1 - FITTING.chance, len(z), freedom))
    claims = (
        Claim("residual over the noise", largest, fit.spread, statement=f"noise: {noise.source}"),
        Claim("held-out over fitted", above, ratio, statement="ratio of mean squares, errors of the fit allowed for"),
        Claim(
            "missing features",
            -math.log10(FITTING.significance),
            -math.log10(max(missing.p_value, 1e-300)),
            statement=f"minus the logarithm of the p-value of the strongest: {missing.feature}",
        ),
        Claim(
            "another class",
            FITTING.significance,
            other,
            statement="chance that answers as large of one would agree as well",
        ),
        pac(fit, f"are off by at most {fit.gap:.2g}"),
    )
    curved = max(bent(problem, fit.x, fit.seen, deviations, fit.spread), 1.0)
    known = fit.seen.certain and curved <= FITTING.bent
    doubts = _doubts(fit, noise, missing, other, known, fit.spread > largest, ratio > above)
    picked = picks_one_token(problem, fit.x, noise.deviations(problem.blocks.y).ravel()) if doubts else False
    if picked or (noise.source != "none" and unbounded(problem, fit.x, deviations)):
        doubts = [_ARGMAX]
    if doubts:
        return Judged(Status.SURROGATE, claims[-1:], tuple(doubts), fit.spread, 1.0)
    return Judged(Status.CONSISTENT, claims, (), fit.spread * math.sqrt(curved), 1.0)


def _doubts(
    fit: Checked, noise: Noise, missing: Missing, other: float, known: bool, too_large: bool, worse: bool
) -> list[str]:
    """Why this is not called a recovery, the strongest reason first."""
    doubts = [_UNTESTED] if fit.spare < FITTING.fewest else []
    if missing.p_value < FITTING.significance:
        doubts.append(
            f"The fit does not explain the answers: {missing.feature} would explain more (p = {missing.p_value:.1g}). "
            "Fit a wider class; if this should be the right one, add records, or starts."
        )
    if noise.source == "none":
        doubts.append(
            "The residual is above rounding, no tolerance is declared and no records repeat: a misfit cannot be told "
            "from noise. Declare `tolerance`, or add records of equal sequences."
        )
    elif too_large:
        doubts.append(
            f"The residual is {fit.spread:.3g} times the noise ({noise.source}): another class, a minimum that is not "
            "the best one, or more noise than that; add records, or starts."
        )
    if worse:
        doubts.append("Held-out records fit worse than the fit's own error bars allow: more records are needed.")
    if other > FITTING.significance:
        doubts.append(_ANY.format(other))
    if not known:
        doubts.append(
            "The records hardly show some directions of the parameters, whose errors are not known: add more."
        )
    return doubts


def pac(fit: Checked, what: str, apart: int = 0) -> Claim:
    """A statement about records like these, from those that nobody touched, `apart` of which do not as is said.

    Clopper and Pearson: so large a share would leave so few of them apart with a chance of 1 - confidence.
    """
    from scipy.stats import beta  # a slow import, needed at the end of a fit only

    k = len(fit.held) // fit.shape.outputs
    sure = 1 - FITTING.significance
    share = float(beta.ppf(sure, apart + 1, k - apart)) if apart < k else 1.0
    return Claim(
        "records like these",
        share,
        apart / k,
        statement=f"{k - apart} of {k} held-out records {what}; with {sure:.0%} confidence the share of "
        "records of the same distribution that are not is below the bound",
    )
