"""Several heads in front of an unknown network: fresh query tokens at which one head, or none, is on.

With one head undecided and the others off, 1 and 4 copies of the query token tell its score whatever the network is;
with all heads off nothing answers, unless there is a head that the model does not have.

Theory: docs/theory/verification.md, "Behind a network", heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from unsoftmax.learners.behind.far import Far
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.settling import settle
from unsoftmax.models.base import Model
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.plan import Checked, Count, Plan
from unsoftmax.verify.stated import implied, statements
from unsoftmax.verify.ties import faint

_UNREADABLE = 1.0
"""Defined: stands for the gap of a score that cannot be read at all."""


def count(spec: OracleSpec, heads: Count) -> Count:
    """Every pair of a head is asked with 1 and with 4 copies of the query token; small weights are asked once."""
    fewest, most = (
        MODELS.behind_pairs + MODELS.behind_silent + (2 * MODELS.behind_pairs + MODELS.behind_faint) * number
        for number in heads
    )
    return fewest, most


def check(model: HeadsBehind, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Scores of every head at fresh pairs, and silence where all heads are off."""
    rng = np.random.default_rng([seed, 0x7E51F7])
    far = Far(spec, model.length, model.degree, spec.eps, 1.0)
    sample = rng.standard_normal((MODELS.behind_pairs, spec.dim)) / np.sqrt(spec.dim)
    loud = yield from far.ask(sample, np.zeros(spec.dim), phase="verify")
    scale = 2.0**model.degree * float(np.sqrt(np.mean(loud**2)))
    found: list[Claim] = []
    errors: dict[str, float] = {}
    levels = faint((model.heads, MODELS.behind_faint), rng)
    for h in range(model.heads):
        a, b = yield from settle(f"pairs of head {h + 1}", *_pairs(model, h, MODELS.behind_pairs, rng))
        t, y = yield from far.one_head(a, b, phase="verify")
        tokens = far.tokens(a, b)
        wanted = _scores_of(h, tokens)(model)
        answers = np.abs(y) / np.linalg.norm(a, axis=1) ** model.degree
        own = float(np.sqrt(np.mean(answers**2)))
        # Where the network hardly answers, rounding hides the score; a weak head is loud beside itself.
        clear = answers > 1e-3 * own
        hidden = VERIFY.roundings * spec.eps * scale / max(own, 1e-300)
        (lowest,) = map(int, (yield from settle("lowest score", np.argmin(np.where(clear, wanted, np.inf)))))
        small = yield from _small_weight(model, far, h, (a[lowest], b[lowest], y[lowest]), levels[h])
        statement = (
            f"largest gap of a score at {MODELS.behind_pairs} fresh pairs where only this head is undecided, and of a "
            "weight "
            f"relative to itself at {MODELS.behind_faint} where it is small"
        )
        gap = float(np.nan_to_num(np.abs(t - wanted)[clear], nan=_UNREADABLE, posinf=_UNREADABLE).max(initial=small))
        if clear.sum() < 3 or hidden > _UNREADABLE:
            drowned = "unknown: its scores drown in rounding beside the other heads"
            found.append(Claim(f"head {h + 1}", math.inf, statement=drowned))
            continue
        X = tokens[clear]
        own_errors = implied(model, _scores_of(h, X), np.nan_to_num((t - wanted)[clear], nan=_UNREADABLE), rng)
        errors[f"W_{h + 1}"] = own_errors[f"W_{h + 1}"]
        bound = max(HALF_DIGITS, 1e6 * spec.eps, hidden)
        found.append(Claim(f"head {h + 1}", bound, gap, statement=statement))
    a, b = yield from settle("pairs of no head", *_pairs(model, None, MODELS.behind_silent, rng))
    y = yield from far.ask(a, b, phase="verify")
    heard = float((np.abs(y) / (scale * np.linalg.norm(a, axis=1) ** model.degree)).max())
    statement = f"largest answer at {MODELS.behind_silent} fresh pairs where all heads found are off"
    stated = statements(model, errors, f"{MODELS.behind_pairs} fresh pairs of every head")
    quiet = Claim("no other head", max(MODELS.behind_quiet, 1e4 * spec.eps), heard, statement=statement)
    return Checked((*found, quiet), stated)


PLAN = Plan(count, check)


def _small_weight(
    model: HeadsBehind, far: Far, h: int, pair: tuple[Array, Array, float], levels: Array
) -> Asking[float]:
    """Largest gap of a weight of head h relative to itself, where b of the pair (a, b) answered by y is longer.

    An error of W counts as much less as the score has grown, and weights that the other heads' rest hides not at all.
    """
    a, b, y = pair
    score = _scores_of(h, far.tokens(a[None], b[None]))(model)
    (longer,) = yield from settle(
        "longer query tokens", np.clip(levels / min(float(score[0]), -0.1), 1.0, VERIFY.longer_query)[:, None] * b
    )
    many = np.tile(a, (len(longer), 1))
    answers = yield from far.ask(many, longer, phase="verify")
    with np.errstate(all="ignore"):
        share = np.abs(answers / y) ** (1 / model.degree) * np.sign(answers / y)
        scores = _scores_of(h, far.tokens(many, longer))(model)
        weight = expit(scores) / expit(score)
        heard = weight + max(MODELS.behind_quiet, 1e4 * far.spec.eps)
        gap = np.abs(share - weight) / heard / np.maximum(np.abs(scores / score), 1.0)
    return float(np.nan_to_num(gap, nan=_UNREADABLE, posinf=_UNREADABLE).max())


def _scores_of(h: int, tokens: Array) -> Callable[[Model], Array]:
    """The scores (n,) of head h at pairs (n, 2, d), as a function of the model."""

    def scores(model: Model) -> Array:
        assert isinstance(model, HeadsBehind)
        return np.asarray(np.einsum("nd,de,ne->n", tokens[:, 0] - tokens[:, 1], model.W[h], tokens[:, 1]))

    return scores


def _queries(model: HeadsBehind, h: int | None, number: int, rng: np.random.Generator) -> Array:
    """Fresh query tokens (number, d), of a length that gives typical scores of order one hundred."""
    b = rng.standard_normal((number, model.dim))
    b /= np.linalg.norm(b, axis=1, keepdims=True)
    sizes = np.linalg.norm(model.W, axis=(1, 2))
    chosen = sizes.max(initial=0.0) if h is None else sizes[h]
    return np.asarray(b * (1e2 / max(float(chosen), 1e-300)))


def _pairs(model: HeadsBehind, h: int | None, number: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """a, b (number, d) with all heads but h off, and scores of about +-1.5 of head h; a long elsewhere too."""
    b = _queries(model, h, number, rng)
    rows = []
    for query in b:
        w = model.W @ query
        target = -CORE.no_digit * rng.uniform(1.0, 2.0, model.heads)
        if h is not None:
            target[h] = rng.uniform(-VERIFY.widest_score, VERIFY.widest_score)
        dual = np.linalg.pinv(w)
        a = dual @ target
        free = rng.standard_normal(model.dim)
        free -= dual @ (w @ free)
        rows.append(a + 1.5 * np.linalg.norm(a) * free / max(float(np.linalg.norm(free)), 1e-300))
    return np.array(rows), b
