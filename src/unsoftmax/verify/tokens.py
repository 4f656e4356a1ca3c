"""Equivalence over token ids on fresh sequences: alone, random of many lengths, and near ties.

Every answer is held to what the declared noise and the model's own stated errors allow it to differ, so the certificate
tests the statement and not only the numbers.

Theory: docs/theory/verification.md, "Token ids".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.core.settling import settle_list
from unsoftmax.models.base import Model, attention_weights
from unsoftmax.models.token_head import TokenHead
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import sure
from unsoftmax.verify.plan import Checked, Plan, exactly
from unsoftmax.verify.sent import lengths, long_sequences
from unsoftmax.verify.ties import faint as faint_scores

_CHOSEN = {"near ties": (2, 3, 6), "repeated": (3, 4), "faint": (2, 3)}
"""Lengths of sequences that are chosen: scores that nearly tie, where an error of theirs shows most; the last token
also elsewhere, [j, i, j] and [i, i, j, j]; a faint token beside one other, or two of which one is strong, which shows
gaps that ties do not reach."""


@runtime_checkable
class OverVocabulary(Protocol):
    """A model of vectors that knows the embeddings of a vocabulary."""

    def over_vocabulary(self) -> TokenHead: ...


def queries(spec: OracleSpec) -> int:
    """How many fresh queries a verification asks."""
    chosen = sum(VERIFY.per_length if name == "repeated" else VERIFY.token_ties for name, _ in _chosen(spec))
    return VERIFY.one_token + sum(_random(spec).values()) + chosen


def _random(spec: OracleSpec) -> dict[int, int]:
    """Lengths of random sequences and how many of each: a rule that starts at some length shows in long ones."""
    return dict.fromkeys(lengths(spec), VERIFY.per_length) | long_sequences(spec, 2 * VERIFY.per_length)


def _chosen(spec: OracleSpec) -> list[tuple[str, int]]:
    """Kinds and lengths of chosen sequences that the domain allows."""
    return [(name, n) for name, some in _CHOSEN.items() for n in some if n <= spec.domain.length_limit]


def check(model: Model, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh sequences of ids and compare; nothing is raised but for a model that does not speak of ids."""
    head = _head(model)
    rng = np.random.default_rng([seed, 0x70C3])
    known = head.known
    rounds = [("one token", Probes(rng.choice(known, (VERIFY.one_token, 1)), phase="verify"))]
    for n, count in _random(spec).items():
        rounds.append(("random", Probes(rng.choice(known, (count, head.length or n)), phase="verify")))
    draw: dict[str, Callable[..., Probes]] = {
        "near ties": partial(near_ties, spec=spec),
        "repeated": repeated,
        "faint": faint,
    }
    for name, n in _chosen(spec):
        rounds.append((name, (yield from _settled(name, draw[name](head, length=n, rng=rng)))))
    answers = []
    for _, probes in rounds:
        answers.append((yield probes))
    spread = float(np.ptp(head.values[known]))
    unit = max(spec.eps, rounding_unit(np.concatenate(answers)))
    alone = float(np.abs(answers[0] - head(rounds[0][1].tokens)).max())
    noise = 2 * spec.tolerance + VERIFY.roundings * unit * float(np.abs(head.values[known]).max())
    noise += min(alone, MODELS.hidden * spread) + 2 * decimal_error(np.concatenate(answers))
    claims = []
    for name in dict(rounds):
        parts = [(probes, y) for (kind, probes), y in zip(rounds, answers, strict=True) if kind == name]
        claims.append(_claim(name, head, parts, noise, spread))
    return Checked(tuple(claims))


PLAN = Plan(exactly(queries), check)


def _settled(name: str, chosen: Probes) -> Asking[Probes]:
    """Ids and copies as they were chosen first: last digits of the model's scores decide among nearly equal ones."""
    own = [chosen.tokens] if chosen.counts is None else [chosen.tokens, chosen.counts]
    ids, *copies = [part.astype(np.int64) for part in (yield from settle_list(name, own))]
    return Probes(ids, copies[0] if copies else None, phase=chosen.phase)


def _claim(name: str, head: TokenHead, parts: list[tuple[Probes, Array]], noise: float, spread: float) -> Claim:
    worst, largest, coarsest, asked = 0.0, 0.0, 0.0, 0
    for probes, y in parts:
        gap = np.abs(head(probes.tokens, probes.counts) - y)
        allowed = np.minimum(noise + stated_error(head, probes), noise + VERIFY.most_claimed * spread)
        worst = max(worst, float((gap / allowed).max())) if noise > 0 else max(worst, float(gap.max() > 0))
        largest, coarsest = max(largest, float(gap.max())), max(coarsest, float(allowed.max()))
        asked += len(y)
    confidence = "" if name == "one token" else f"; {sure(asked)}"
    return Claim(
        f"{name} sequences" if name != "one token" else "one-token answers",
        1.0,
        worst,
        statement=(
            f"largest difference over what noise and the model's stated errors allow, on {asked} fresh sequences "
            f"(differences up to {largest:.2g}, allowed up to {coarsest:.2g}){confidence}"
        ),
    )


def stated_error(head: TokenHead, probes: Probes) -> Array:
    """How far answers (batch,) may move if every gap moves within its stated bound, to first order."""
    ids, last = probes.tokens, probes.tokens[:, -1:]
    weights = attention_weights(head.gaps(ids, last), probes.counts)
    values = head.values_in(ids)
    mean = (weights * values).sum(axis=1, keepdims=True)
    return np.asarray((weights * np.abs(values - mean) * head.bounds(ids, last)).sum(axis=1))


def near_ties(head: TokenHead, spec: OracleSpec, length: int, rng: np.random.Generator) -> Probes:
    """Sequences of `length` different rows whose scores nearly tie, at whatever level; weak keys are repeated."""
    length = head.length or length
    last = rng.choice(head.known, VERIFY.token_ties)
    pool = rng.choice(head.known, (VERIFY.token_ties, min(VERIFY.id_pool, 8 * length)))
    level = head.gaps(pool, last[:, None])
    # The last token is always there at level 0: what ties below it is hidden by it.
    visible = np.where(level > -1, rng.random(level.shape), -np.inf)
    target = np.take_along_axis(level, np.argmax(visible, axis=1)[:, None], axis=1)
    target = np.where(np.isfinite(visible).any(axis=1, keepdims=True), target, 0.0)
    order = np.argsort(np.abs(level - target), axis=1, kind="stable")[:, : length - 1]
    keys, level = np.take_along_axis(pool, order, axis=1), np.take_along_axis(level, order, axis=1)
    tokens = np.hstack([keys, last[:, None]])
    room = (spec.domain.length_limit - 1) // max(1, length - 1)
    most = 1 if head.length else int(min(VERIFY.token_copies, max(1, room)))
    copies = np.clip(np.exp(np.clip(-level, 0.0, 9.0)), 1, most).astype(np.int64)
    counts = np.hstack([copies, np.ones((VERIFY.token_ties, 1), dtype=np.int64)])
    return Probes(tokens, None if (counts == 1).all() else counts, phase="verify")


def repeated(head: TokenHead, length: int, rng: np.random.Generator) -> Probes:
    """[j, i, j] or [i, i, j, j]: the last token also stands where it is not last, so its place must not matter."""
    i, j = rng.choice(head.known, (2, VERIFY.per_length))
    if head.length:
        return Probes(np.stack([i, j], axis=1), phase="verify")
    return Probes(np.stack([j, i, j] if length == 3 else [i, i, j, j], axis=1), phase="verify")


def faint(head: TokenHead, length: int, rng: np.random.Generator) -> Probes:
    """Sequences with one token of small weight, down to `ties.FAINTEST`, whose value is far from the others'.

    Of two tokens either may be the weak one. Of three one is as strong as the pool has it, so that small weights
    occur also where scores are close.
    """
    length = head.length or length
    last = rng.choice(head.known, (VERIFY.token_ties, VERIFY.last_tokens, 1))
    pool = rng.choice(head.known, (VERIFY.token_ties, VERIFY.last_tokens, VERIFY.id_pool))
    level = head.gaps(pool, last)
    strongest = np.take_along_axis(pool, np.argmax(level, axis=2)[:, :, None], axis=2)
    below = -np.abs(level) if length == 2 else level - np.maximum(level.max(axis=2, keepdims=True), 0.0)
    beside = last if length == 2 else strongest
    distance = np.abs(head.values[pool] - head.values[beside]).reshape(VERIFY.token_ties, -1)
    wanted = faint_scores((VERIFY.token_ties, 1), rng)
    near = np.argsort(np.abs(below.reshape(VERIFY.token_ties, -1) - wanted), axis=1, kind="stable")[
        :, : VERIFY.far_draws
    ]
    chosen = np.take_along_axis(near, np.argmax(np.take_along_axis(distance, near, axis=1), axis=1)[:, None], axis=1)
    parts = (pool, last) if length == 2 else (pool, strongest, last)
    flat = [np.broadcast_to(part, pool.shape).reshape(VERIFY.token_ties, -1) for part in parts]
    return Probes(np.hstack([np.take_along_axis(part, chosen, axis=1) for part in flat]), phase="verify")


def _head(model: Model) -> TokenHead:
    if isinstance(model, TokenHead):
        return model
    if isinstance(model, OverVocabulary):
        return model.over_vocabulary()
    raise InvalidArgument(f"a {type(model).__name__} says nothing about token ids and cannot be checked over them.")
