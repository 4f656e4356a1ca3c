"""From labels: bits, and queries with and without flips; Theorem B.1 as published."""

from __future__ import annotations

import math

from unsoftmax.arguments import checked
from unsoftmax.theory.values import low_rank_unknowns, single_head_unknowns


@checked
def membership_bits(accuracy: float) -> int:
    """Whole bits per number: log2(1 / accuracy) rounded down; the rest is the bracket's."""
    return max(1, math.floor(math.log2(1 / accuracy)))


@checked
def membership_floor(d: int, accuracy: float, r: int | None = None) -> float:
    """One bit per label: no learner knows all unknowns (the norm of v is not one) to `accuracy` with fewer queries."""
    unknowns = single_head_unknowns(d) if r is None else low_rank_unknowns(d, r)
    return (unknowns - 1) * math.log2(1 / accuracy)


@checked
def membership_finest_accuracy(d: int, eps: float) -> float:
    """What rounding leaves: labels near the boundary are right to about eps sqrt d in the share of attention."""
    return 40 * math.sqrt(d) * eps


@checked
def membership_flips(d: int, H: int) -> int:
    """Sequences where the label flips that `Membership` bisects for H heads: 1.3 per unknown, and ten."""
    return math.ceil(1.3 * H * (d * d + d)) + 10


@checked
def membership_flip_bits(accuracy: float) -> int:
    """Labels per such sequence once the flip is placed to 2^-7: brackets then are an eighth of the accuracy."""
    return max(4, math.ceil(math.log2(1 / accuracy)) - 4)


@checked
def membership_heads_floor(d: int, H: int, accuracy: float) -> float:
    """One bit per label: all unknowns of H heads but the common scale of v to `accuracy`."""
    return (H * (d * d + d) - 1) * math.log2(1 / accuracy)


@checked
def membership_noisy_rounds(d: int, accuracy: float, flip: float, delta: float) -> int:
    """Answers that settle one number if each is flipped with probability `flip`: its bits, and those of its certainty
    delta / (2 d^2), at 1 - H(flip) bits an answer."""
    capacity = 1 + flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip)
    return math.ceil((math.log2(1 / accuracy) + math.log2(2 * d * d / delta)) / capacity)


@checked
def membership_noisy_lead(d: int, flip: float, delta: float) -> int:
    """Lead of answers at which a decision is wrong with probability delta / (40 d)."""
    return math.ceil(math.log(40 * d / delta) / math.log((1 - flip) / flip))


@checked
def membership_noisy_pilot(flip: float, delta: float) -> int:
    """Entries asked per level to find the size of W: all or none pass for half with probability delta / 100 at most."""
    deviations = math.sqrt(2 * math.log(100 / delta))
    return max(32, math.ceil(2 * flip * (1 - flip) * (2 * deviations / (1 - 2 * flip)) ** 2))


@checked
def membership_noisy_queries(d: int, accuracy: float, flip: float, delta: float = 0.01) -> int:
    """About what flipped labels cost in all: every number, 4 d decisions for v, ten levels for the size of W."""
    numbers = (d * d + d) * membership_noisy_rounds(d, accuracy, flip, delta)
    decisions = 4 * d * membership_noisy_lead(d, flip, delta) / (1 - 2 * flip)
    return math.ceil(numbers + decisions + 20 * membership_noisy_pilot(flip, delta))


@checked
def membership_value_error(d: int, eps_W: float, W_bound: float, margin: float) -> float:
    """Theorem B.1: the error of v that an error eps_W of W asks for, eps_W mu^3 / (40 Wbar d)."""
    return eps_W * margin**3 / (40 * W_bound * d)


@checked
def membership_value_queries(d: int, eps_v: float, delta: float) -> int:
    """Theorem B.1: random unit vectors so that every entry of v is within eps_v with probability 1 - delta."""
    R = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
    return math.ceil(2 / (eps_v * R) ** 2 * math.log(2 * d / delta))


@checked
def membership_interval(W_bound: float, margin: float) -> tuple[float, float]:
    """Theorem B.1: where the length a of the query token at the flip lies, whatever W and v are."""
    return math.sqrt(margin / (8 * W_bound)), math.sqrt(1 / (2 * W_bound * margin))


@checked
def membership_entry_queries(d: int, eps_W: float, W_bound: float, margin: float) -> int:
    """Theorem B.1: bisection steps per entry of W, with the constant its proof leaves open.

    sigma(s W_ij) s must come out within eta / (4 Wbar^2 L), eta = eps_W / d and L = 4.2554 the slope of the logit at
    sigma(1/2). An error eps_v of v uses eta / (20 Wbar^2) of that; an error tau of a adds tau sqrt(2/(Wbar mu)) / mu,
    and 10 % for the product of both errors.
    """
    eta = eps_W / d
    left = eta / W_bound**2 * (1 / (4 * 4.2554) - 1 / 20)
    tau = left * margin * math.sqrt(W_bound * margin / 2) / 1.1
    low, high = membership_interval(W_bound, margin)
    return max(1, math.ceil(math.log2((high - low) / (2 * tau))))


@checked
def membership_queries(
    d: int, eps_W: float, W_bound: float, margin: float, delta: float = 0.01, eps_v: float | None = None
) -> int:
    """Theorem B.1 in all: random vectors for v and bisection for every entry of W.

    eps_W absolute (Frobenius), W_bound >= ||W||_F, margin <= min |v_i| of the unit v; `eps_v` replaces the theorem's.
    """
    eps_v = membership_value_error(d, eps_W, W_bound, margin) if eps_v is None else eps_v
    return membership_value_queries(d, eps_v, delta) + d * d * membership_entry_queries(d, eps_W, W_bound, margin)
