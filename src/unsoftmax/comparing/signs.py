"""Is there a difference that repeats its sign? A changed weight does, rounding does not, whatever its law.

Partners: (a, b) and (-mu a, nu b) for near ties, where dy = (a . v) s' a'dW b keeps its sign; x and -mu x for single
tokens, where it turns. Key offsets do not grow with b and would part what was tied: with these, partners lie nearby and
are tied again. Bets on the sign need no model of the noise: prod (1 + lambda s) is at most 1 on average.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.comparing import designs
from unsoftmax.comparing.arithmetic import ROUND, UNIT, computed, to_bfloat16
from unsoftmax.comparing.constants_explaining import EXPLAINING
from unsoftmax.comparing.designs import SINGLES, TIES, Asked
from unsoftmax.comparing.heads import Heads
from unsoftmax.comparing.naming import Named
from unsoftmax.comparing.repeats import agreement, log_wealth, nearby
from unsoftmax.comparing.scales import Sample
from unsoftmax.comparing.state import Evidence
from unsoftmax.learners.core.base import Asking
from unsoftmax.models.base import Array
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.comparison import Finding

PHASE = "signs"
_LEANING = np.log(20)
"""Wealth from which signs are not called random without further questions: rounding gets there once in twenty times. A
weight had been called unchanged where 21 of 24 signs agreed."""


def gate(state: Evidence) -> Asking[Finding | None]:
    """None if a weight changed; else the arithmetic that explains the size of the differences."""
    rng, made = state.rng, state.plan
    asked = Asked(made.asked.spec, made.noise.arithmetic)
    ties = next(g for g in made.groups if g.name == TIES)
    (X, y, _), (one, y_one, _) = state.samples[0], state.samples[1]
    heads: Heads | None = state.heads
    if X.shape[1] != 2:
        # More heads than dimensions are not tied in pairs; any pair has a partner.
        ties, y = yield from state.ask(_pairs(len(X), asked, made.usual, rng), PHASE)
        X = ties.X
        heads = None
    offsets = heads is not None and bool(np.any(heads.c))
    Z, y_ties = yield from state.ask((nearby if offsets else _partners)(X, heads, asked, rng), PHASE)
    agree = agreement(ties.residual(y) / ties.sd, Z.residual(y_ties) / Z.sd)
    singles = next(g for g in made.groups if g.name == SINGLES)
    more = designs.singles(asked, max(0, EXPLAINING.single_pairs - len(one)), _norm(one), rng)
    fresh, y_more = yield from state.ask(more, PHASE)
    both = np.concatenate([one, more])
    turned, y_turned = yield from state.ask(asked.on_grid(-both * _stretch(len(both), rng)[:, None, None]), PHASE)
    first = np.concatenate([singles.residual(y_one) / singles.sd, fresh.residual(y_more) / fresh.sd])
    turn = -agreement(first, turned.residual(y_turned) / turned.sd)
    leaning = max(log_wealth(agree), log_wealth(turn))
    if leaning >= np.log(2 / state.alpha):
        return None
    found = _arithmetic(state, ties.X, ties.residual(y))
    if found is not None and leaning < _LEANING:
        return found
    # Values and scores may both differ, by little more than rounding: nearby questions show either.
    wealth = 0.0
    for before, tied, questions, answers, item in ((agree, heads, X, y, ties), (turn, None, one, y_one, singles)):
        again, y_again = yield from state.ask(nearby(questions, tied, asked, rng), PHASE)
        signs = agreement(item.residual(answers) / item.sd, again.residual(y_again) / again.sd)
        wealth = max(wealth, log_wealth(signs), log_wealth(np.concatenate([before, signs])))
    if wealth >= np.log(8 / state.alpha):
        return None
    return found or _too_small(state, ties.residual(y) / ties.sd)


def leaves_rounding(state: Evidence, named: Named, asked: Sample) -> Asking[bool]:
    """Whether what a format leaves of the answers is rounding: changed a little, the same questions get it anew.

    A changed weight leaves nearly the same again. In small models its differences lie in few directions and may go
    with those of a format by chance.
    """
    X, y, _ = asked
    near = nearby(X, None, Asked(state.plan.asked.spec, "bfloat16"), state.rng)
    partners, y_near = yield from state.ask(near, PHASE)
    agree = agreement(y - named.best.predict(X), y_near - named.best.predict(partners.X))
    return log_wealth(agree) < np.log(2 / state.alpha)


def _pairs(n: int, asked: Asked, norm: float, rng: np.random.Generator) -> Array:
    X = (
        sphere(rng, (n, 2, asked.spec.dim))
        * norm
        * np.exp(rng.uniform(-EXPLAINING.partner_spread, EXPLAINING.partner_spread, (n, 2, 1)))
    )
    return asked.on_grid(X)


def _partners(X: Array, heads: Heads | None, asked: Asked, rng: np.random.Generator) -> Array:
    nu = _stretch(len(X), rng)[:, None]
    mu = np.exp(rng.uniform(-0.1, 0.1, (len(X), 1))) / nu
    b, a = X[:, 1], X[:, 0] - X[:, 1]
    return asked.on_grid(np.stack([nu * b - mu * a, nu * b], axis=1))


def _stretch(n: int, rng: np.random.Generator) -> Array:
    return np.exp(rng.uniform(-EXPLAINING.partner_spread, EXPLAINING.partner_spread, n))


def _norm(one: Array) -> float:
    return float(np.linalg.norm(one, axis=2).mean())


def _too_small(state: Evidence, z: Array) -> Finding:
    declared = state.plan.noise.arithmetic
    excess = float(np.sqrt(np.mean(z**2)))
    tails = state.base.evidence["tails"]
    shown = [name for name, tail in tails.items() if tail <= state.alpha / len(tails) and "one output" not in name]
    if shown and TIES not in shown and SINGLES not in shown:
        words = (
            f"Near ties and single tokens are answered as the reference answers them, to {declared} rounding; "
            f"{' and '.join(shown)} are not: a window, positions, a rule for some sequences, or sums that round more."
        )
        return state.base.said("unexplained", words, evidence={"rms difference over rounding": excess})
    words = (
        f"The answers differ from the reference's by {excess:.2g} times what {declared} rounding leaves, and without a "
        f"steady sign: either the target rounds more than any kernel tried, or its weights differ by up to "
        f"{excess * state.base.detectable:.1g} of their size, as those of a copy recovered from answers would."
    )
    return state.base.said("unexplained", words, evidence={"rms difference over rounding": excess})


def _arithmetic(state: Evidence, X: Array, residual: Array) -> Finding | None:
    """The number format whose rounding is of the size of the differences; None if it is the declared one."""
    heads = state.heads
    seen = float(np.sqrt(np.mean(residual**2)))
    sizes = {}
    for name in UNIT:
        grid = to_bfloat16(X) if name == "bfloat16" else ROUND[name](X)
        errors = computed(heads, grid, name) - heads(grid)
        sizes[name] = max(float(np.sqrt(np.mean(errors**2))), 1e-300)
    nearest = min(sizes, key=lambda name: abs(np.log(seen / sizes[name])))
    facts = {"rms difference": seen, "rms expected": sizes}
    declared = state.plan.noise.arithmetic
    if UNIT[nearest] <= UNIT[declared]:
        return None
    words = (
        f"The weights are the reference's; the differences change their sign at random and are of the size of "
        f"{nearest} rounding: the target computes in it."
    )
    return state.base.said("arithmetic", words, format=nearest, evidence=facts)
