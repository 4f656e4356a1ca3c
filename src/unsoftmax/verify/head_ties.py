"""Near ties of one head among several: a token that no other head answers to, and what an error of the head moves.

Theory: docs/theory/verification.md, "Several heads".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.models.base import attention_weights
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.precision import HALF_DIGITS, UNIT
from unsoftmax.probes.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.spec import OracleSpec
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import inside
from unsoftmax.verify.ties import below_all, deep, faint


def tying_ones(number: int) -> Array:
    """Which of a head's sequences have ties only; the others reach down to small weights."""
    return np.asarray(np.arange(number) % 3 != 0)


def all_ties(model: MultiHead, number: int, spec: OracleSpec, rng: np.random.Generator) -> Array:
    """Sequences (H number, N, d), so many of every head, one head after the other."""
    below = faint((model.heads, int((~tying_ones(number)).sum())), rng, spec.eps)
    return np.concatenate([head_ties(model, h, number, spec, rng, below[h]) for h in range(model.heads)])


def head_ties(model: MultiHead, h: int, number: int, spec: OracleSpec, rng: np.random.Generator, below: Array) -> Array:
    """Sequences (number, N, d), N = 3 or 4, with scores within +-1.5 of the last one's under head h, or about `below`.

    The first tokens are random, the one before the last is orthogonal to the values of the other heads. Tokens far
    below lie there under all heads: others that attended to them would drown what head h says.
    """
    length = int(min(VERIFY.tie_length, spec.domain.length_limit))
    offset = 0.0 if model.c is None else model.c[h]
    q = sphere(rng, (4 * number, spec.dim))
    readable = np.linalg.norm(q @ model.W[h].T, axis=1)
    q = q[np.argsort(readable, kind="stable")[-number:]]
    rate = np.linalg.norm(q @ model.W[h].T, axis=1, keepdims=True)
    norm = np.clip(np.where(rate > 0, np.maximum(rate, 1e-300) ** -0.5, 1.0), 1e-6, 1e6)
    q = q * np.minimum(norm, 0.3 * spec.domain.norm_limit)
    u = q @ model.W[h].T + offset
    z = sphere(rng, (number, length - 1, spec.dim)) * np.linalg.norm(q, axis=1)[:, None, None]
    free = free_of_others(model, h)
    # Half of it along the values of head h: what this head does with it is then loud.
    across, along = z[:, -1] @ free, free @ model.v[h]
    sizes = np.linalg.norm(across, axis=1, keepdims=True) / max(float(np.linalg.norm(along)), 1e-300)
    z[:, -1] = across + rng.choice([-1.0, 1.0], (number, 1)) * sizes * along
    target = rng.uniform(-VERIFY.widest_score, VERIFY.widest_score, (number, length - 1))
    far = ~tying_ones(number)
    # Tokens of one sequence lie about equally far below: a loud one would hide what becomes of the others.
    target[far] = below[:, None] + target[far] / 3
    for i in range(length - 1):
        room_for = free if i == length - 2 else np.eye(spec.dim)
        directions = model.key_directions(q[far]) @ room_for
        z[far, i] = below_all(z[far, i] @ room_for, directions, np.zeros_like(q[far]), target[far, i])
    ways = np.stack([u] * (length - 2) + [u @ free], axis=1)
    size = np.einsum("bnd,bnd->bn", ways, ways)
    step = np.divide(target - np.einsum("bnd,bd->bn", z, u), size, out=np.zeros_like(size), where=size > 0)
    room = min(0.65 * spec.domain.norm_limit, 1e4 * float(norm.max()))
    # Scores too weak to tie within the room leave the tokens in random directions all the same.
    z = z + inside(step[:, :, None] * ways, 0.5 * room)
    z = inside(z, room)
    # Long differences and a short query token keep the scores and outscale additive noise, where length is free.
    bounded = not np.isinf(spec.domain.norm_limit)
    longer = 1.0 if bounded else max(1.0, 1e12 * spec.tolerance)
    tokens = np.concatenate([z * longer, np.zeros((number, 1, spec.dim))], axis=1) + q[:, None] / longer
    if bounded and spec.tolerance == 0:
        tokens[far] = _deep(model, h, tokens[far], spec.domain.inside, rng)
    return np.asarray(tokens)


def _deep(model: MultiHead, h: int, tokens: Array, limit: float, rng: np.random.Generator) -> Array:
    """Sequences (n, N, d) whose weights under head h reach as far down as the limit of the norm allows, and in which
    the other heads answer to the last token alone: all others differ where these have no value."""
    found = deep(model.key_directions, np.full((len(tokens), 1), h), tokens, limit, rng)
    first, free = found[:, :1], free_of_others(model, h)
    # What the projection takes away of the way down is gone; what is left scores as it scores.
    found[:, 1:-1] = first + (found[:, 1:-1] - first) @ free
    return inside(found, limit)


def free_of_others(model: MultiHead, h: int) -> Array:
    """Projector (d, d) off the values of the other heads, or the identity if that would hide head h too."""
    others = np.delete(model.v, h, axis=0)
    others = others[np.linalg.norm(others, axis=1) > 0]
    if len(others) == 0:
        return np.eye(model.dim)
    Q = np.linalg.svd(others / np.linalg.norm(others, axis=1, keepdims=True), full_matrices=False)[2]
    P = np.eye(model.dim) - Q.T @ Q
    return P if np.linalg.norm(P @ model.v[h]) > 1e-3 * np.linalg.norm(model.v[h]) else np.eye(model.dim)


def sensitivity(model: MultiHead, h: int, tokens: Array) -> Array:
    """How much each answer moves per relative error of W_h in a random direction, (batch,); of c_h where W_h is 0."""
    q = tokens[:, -1]
    z = tokens - q[:, None]
    u = q @ model.W[h].T + (0.0 if model.c is None else model.c[h])
    t = np.einsum("bnd,bd->bn", z, u)
    alpha = attention_weights(t, None)
    a = z @ model.v[h]
    spread = alpha * np.abs(a - (alpha * a).sum(axis=1, keepdims=True))
    lengths, size = np.linalg.norm(z, axis=2), float(np.linalg.norm(model.W[h])) / model.dim
    if size:
        lengths = lengths * np.linalg.norm(q, axis=1)[:, None]
    elif model.c is not None:
        size = float(np.linalg.norm(model.c[h])) / math.sqrt(model.dim)
    return np.asarray((spread * lengths).sum(axis=1) * size)


def mingled(model: MultiHead, limit: float, off: float) -> Array:
    """Relative error of every head (H,) that others can make up for below a norm limit, answers being off by `off`.

    To first order in the scores answers show sum_h v_h W_h alone: heads are told apart by the squares of small scores,
    and an error that the others cancel is seen as much less.
    """
    scores = limit**2 * np.linalg.norm(model.W, axis=(1, 2)) / model.dim
    sizes = np.linalg.norm(model.v, axis=1)
    seen = scores**2 * sizes / max(float(sizes.sum()), 1e-300)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(scores < MODELS.first_order, np.minimum(off / np.maximum(seen, 1e-300), 1 / UNIT), 0.0)


@dataclass(frozen=True, eq=False)
class Gaps:
    """What fresh sequences show, as many of every head, one head after the other.

    gap       how far each answer is off, (n,)
    rounding  how far rounding and a declared tolerance may put it off, (n,)
    rates     how far a relative error of each head's W puts it off, (H, n)
    size      what gaps are relative to, (n,)
    """

    gap: Array
    rounding: Array
    rates: Array
    size: Array


def verdicts(model: MultiHead, seen: Gaps, noise: float, claimed: float, on: str, of: str) -> list[Claim]:
    """One claim per head: the relative error of its W that the gaps speak of, against what rounding leaves open.

    A head of which rounding alone hides a tenth has no bound: nothing speaks against it, nothing for it. One more claim
    is about small weights, where there are any. `on` says what was asked, `of` what gaps are relative to.
    """
    heads, number = np.arange(model.heads), len(seen.gap) // model.heads
    ties = tying_ones(number)
    rates = seen.rates.reshape(model.heads, model.heads, number)
    gap, own = seen.gap.reshape(model.heads, number)[:, ties], np.maximum(rates[heads, heads], 1e-300)[:, ties]
    # What ties cannot show of a head: its last digits. Where a strong head is not saturated they move the answer too.
    with np.errstate(over="ignore"):
        hidden = np.median(seen.rounding.reshape(model.heads, number)[:, ties] / own, axis=1)
    last = MODELS.last_digits * noise * math.sqrt(model.dim)
    hidden = np.maximum(np.where(hidden < 1 / UNIT, hidden, 0.0), last)
    allowed = (seen.rounding + hidden @ seen.rates).reshape(model.heads, number)[:, ties]
    # What a learner states of every head moves the ties of the others as well.
    granted = claimed * rates.sum(axis=0)[:, ties]
    # A tie that other heads' last digits move more than most counts by as much less.
    with np.errstate(over="ignore"):
        typical = np.median(allowed / own, axis=1)
        rate = np.maximum(own, allowed / typical[:, None])
        off = MODELS.confidence * (np.maximum(gap - allowed - granted, 0) / rate).max(axis=1)
        shown = np.minimum(MODELS.confidence * (gap / rate).max(axis=1), 1 / UNIT)
        bound = np.maximum(np.maximum(HALF_DIGITS, VERIFY.roundings * typical), np.median(granted / rate, axis=1))
    found: list[Claim] = []
    for h in heads:
        if typical[h] > VERIFY.one_digit / MODELS.confidence and off[h] <= bound[h]:
            drowned = f"unknown: its scores drown in rounding beside the other heads, which hides {typical[h]:.2g} of W"
            found.append(Claim(f"head {h + 1}", math.inf, statement=drowned))
            continue
        what = f"W_{h + 1} (Frobenius)" if model.W[h].any() else f"the key offset c_{h + 1} (W_{h + 1} is 0)"
        statement = f"relative error of {what} as {on} show it"
        found.append(Claim(f"head {h + 1}", min(float(bound[h]), VERIFY.one_digit), float(off[h]), statement=statement))
    if ties.all():
        return found
    # Errors of all W as large as ties show them, and of the values: these would put all answers off alike.
    values = 1 + MODELS.confidence * float((gap / seen.rounding.reshape(model.heads, number)[:, ties]).max())
    left = values * seen.rounding + (np.maximum(shown, last) + claimed) @ seen.rates
    nearest = np.flatnonzero(np.tile(~ties, model.heads))
    nearest = nearest[np.argmax((seen.gap / left)[nearest])]
    allowed_there = float(MODELS.small_weight_gaps * left[nearest] / seen.size[nearest])
    statement = (
        f"gap relative to {of} where weights are small, in the sequence where it comes nearest to "
        f"{MODELS.small_weight_gaps:g} times what rounding and the errors that ties show leave"
    )
    small = Claim("small weights", min(allowed_there, VERIFY.one_digit), float((seen.gap / seen.size)[nearest]))
    return [*found, replace(small, statement=statement)]
