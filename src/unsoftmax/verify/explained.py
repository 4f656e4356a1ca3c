"""Several heads by fresh explanations: attention maps and gradients show every head's scores by themselves.

An answer is then many numbers, each in units of its own rounding: the value, and what explains it. An error of W_h
moves them in the first order whatever the other heads do, so that nothing drowns beside these.

Theory: docs/theory/verification.md, "Several heads", explanations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from unsoftmax.inversion import FORMAT_SHOWS, Noise, decimal_error, printed_error, shown_unit, smallest_normal
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import only_values, watched
from unsoftmax.models import explanations
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.precision import ARITHMETIC
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import EXPLAINED, OracleSpec
from unsoftmax.verify.best_head import Round, left_over
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.head_ties import Gaps
from unsoftmax.verify.plan import Checked
from unsoftmax.verify.stated import errors_of, moves, of_head


def one_head(
    model: SingleHead | LowRankHead, spec: OracleSpec, allows: Allowance, by_values: Asking[Checked]
) -> Asking[Checked]:
    """The check of the values alone, and what its answers, explanations included, leave of the best head near."""
    kept: list[tuple[Array, Array]] = []
    explained = spec.kind in EXPLAINED
    asked = watched(only_values(by_values) if explained else by_values, lambda asked, y: kept.append((asked.tokens, y)))  # type: ignore[union-attr]
    checked = yield from asked
    off = _may_be_off(model, allows, Checked(()) if explained else checked)
    if not np.isfinite(off).all():
        return checked
    if explained:
        rounds, words = _explained(model, spec, allows, kept)
        left = left_over(rounds, model.W, model.v, off, spec.kind, enough=MODELS.best_left)
    else:
        W, v, rounds = _plain(model, spec, allows, kept)
        left, words = left_over(rounds, W, v, off, spec.kind, enough=MODELS.best_left), "rounding and tolerance"
    more = ", or root mean square of those of its explanation," if explained else ""
    statement = f"in units of what {words} leave: gap of a fresh value{more} to that of the best head near this one"
    name = "explanations" if explained else "one head"
    return Checked((*checked.gaps, Claim(name, MODELS.best_left, left, statement=statement)), checked.stated)


def _may_be_off(model: SingleHead | LowRankHead, allows: Allowance, checked: Checked) -> tuple[float, float]:
    """How far ||W||_F and ||v|| may be off: as the learner states it, or as fresh answers say that know of no less."""
    if allows.precision is not None:
        return allows.precision.W, allows.precision.v
    said = checked.stated
    others = said.relative or said.of_others
    relative = max(allows.relative_error, 0.0 if others is None else others.bound)
    of_W = relative * float(np.linalg.norm(model.W)) if said.of_W is None else said.of_W.bound
    return of_W, max(allows.value_error, relative * float(np.linalg.norm(model.v)))


def _explained(
    model: SingleHead | LowRankHead, spec: OracleSpec, allows: Allowance, kept: list[tuple[Array, Array]]
) -> tuple[list[Round], str]:
    """Fresh explanations, what every number may be off by, and that in words."""
    numbers = np.concatenate([y.ravel() for _, y in kept])
    absolute = max(spec.tolerance, printed_error(numbers, FORMAT_SHOWS))
    if allows.precision is not None:
        absolute = max(absolute, allows.precision.noise.absolute)
    unit = max(spec.eps, shown_unit(numbers, absolute))
    head = MultiHead(model.W[None], model.v[None])
    words = f"rounding{' and tolerance' if absolute else ''}"
    absolute += smallest_normal(unit)
    slack = CORE.roundings_granted if unit > ARITHMETIC else MODELS.explained_last_digits
    return [Round(X, y, slack * _rounding(head, X, spec.kind, unit) + absolute) for X, y in kept], words


def _plain(
    model: SingleHead | LowRankHead, spec: OracleSpec, allows: Allowance, kept: list[tuple[Array, Array]]
) -> tuple[Array, Array, list[Round]]:
    """W, v and fresh values with what each may be off by; tokens have one more entry, 1, where a head has offsets."""
    noise = Noise(spec.tolerance, CORE.roundings_granted * spec.eps)
    if allows.precision is not None:
        noise = allows.precision.noise
    W, v, d = model.W, model.v, model.dim
    lifted = model.c is not None or model.constant != 0
    if lifted:
        W, v = np.zeros((d + 1, d + 1)), np.append(v, model.constant)
        W[:d, :d], W[:d, d] = model.W, 0.0 if model.c is None else model.c
    rounds = []
    for X, y in kept:
        seen, size = np.isfinite(y), np.linalg.norm(X, axis=2).max(axis=1) * float(np.linalg.norm(model.v))
        y = np.where(seen, y, 0.0)
        allowed = np.where(seen, noise.radius(y, size + abs(model.constant)), np.inf)
        X = np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2) if lifted else X
        rounds.append(Round(X, y[:, None], allowed[:, None]))
    return W, v, rounds


@dataclass(frozen=True, eq=False)
class Shown:
    """What explanations show of a model: gaps for `head_ties.verdicts`, and the error of every parameter."""

    gaps: Gaps
    errors: dict[str, float]


def shown(
    model: MultiHead, spec: OracleSpec, tokens: Array, answers: Array, noise: float, rng: np.random.Generator
) -> Shown | None:
    """Sequences (n, N, d), as many of every head, and their answers (n, 1 + numbers); None where values show more.

    Long tokens outscale an absolute error in values, but not in gradients; maps of another number of heads than the
    model's are not its maps.
    """
    n, N, _ = tokens.shape
    absolute = max(spec.tolerance, decimal_error(answers))
    if spec.kind == "gradient" and absolute > 0:
        return None
    if spec.kind == "attention" and answers.shape[1] != 1 + model.heads * N:
        return None
    rounding = _rounding(model, tokens, spec.kind, noise) + absolute
    predicted = rows(model, tokens, spec.kind)
    if spec.kind == "attention":
        answers = _in_order(predicted, answers, model.heads)

    def predict(other: MultiHead) -> Array:
        return rows(other, tokens, spec.kind) / rounding

    off = (predicted - answers) / rounding
    moved = moves(model, predict, rng)  # type: ignore[arg-type]
    rates = np.sqrt([moved[f"W_{h + 1}" if model.W[h].any() else f"c_{h + 1}"] for h in range(model.heads)])
    errors: dict[str, float] = {}
    each = n // model.heads
    for h in range(model.heads):
        own = slice(h * each, (h + 1) * each)
        found = errors_of({name: square[own] for name, square in moved.items()}, off[own], (answers / rounding)[own])
        errors |= of_head(found, h)
    gap, size = (np.sqrt(np.mean(part**2, axis=1)) for part in (off, predicted / rounding))
    return Shown(Gaps(gap, np.ones(n), rates, size), errors)


def rows(model: MultiHead, tokens: Array, kind: str) -> Array:
    """The answers (n, 1 + numbers) that the model itself would give."""
    more = explanations.gradient(model, tokens) if kind == "gradient" else explanations.attention(model, tokens)
    return np.concatenate([model(tokens)[:, None], more.reshape(len(tokens), -1)], axis=1)


def _rounding(model: MultiHead, tokens: Array, kind: str, noise: float) -> Array:
    """How far rounding puts every number of an answer off, (n, 1 + numbers).

    A weight is off by the rounding of its score, which adds up d products; a gradient by that of its weights, values
    and key directions.
    """
    d, longest = model.dim, np.linalg.norm(tokens, axis=2).max(axis=1)
    directions = np.linalg.norm(model.key_directions(tokens[:, -1]), axis=2)
    scores = 1 + directions * longest
    weights = explanations.attention(model, tokens)
    sizes = np.linalg.norm(model.v, axis=1)
    value = 4 * longest * sizes.sum() + abs(model.constant)
    if kind == "attention":
        more = (weights * scores.T[:, :, None]).reshape(len(tokens), -1)
    else:
        per_token = np.einsum("nhi,hn->ni", weights, sizes[:, None] * scores**2)
        through = np.linalg.norm(model.W, axis=(1, 2)) / math.sqrt(d)
        per_token[:, -1] += ((sizes * through)[:, None] * longest**2 * scores).sum(axis=0)
        more = np.repeat(per_token / math.sqrt(d), d, axis=1)
    return np.asarray(MODELS.explained_roundings * noise * np.concatenate([value[:, None], more], axis=1))


def _in_order(predicted: Array, answers: Array, heads: int) -> Array:
    """Answers with their maps in the order of the model's: order is no part of a model."""
    ours, theirs = (part[:, 1:].reshape(len(part), heads, -1) for part in (predicted, answers))
    apart = np.abs(ours[:, :, None] - theirs[:, None]).mean(axis=(0, 3))
    order = linear_sum_assignment(apart)[1]
    return np.concatenate([answers[:, :1], theirs[:, order].reshape(len(answers), -1)], axis=1)
