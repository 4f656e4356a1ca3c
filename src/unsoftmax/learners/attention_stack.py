"""Every head of every layer of a stack, norms first or none, from vector answers.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Asking, Forecast, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import within
from unsoftmax.learners.stack.apart import DEPENDENT, tell_apart
from unsoftmax.learners.stack.assembly import outcome, plain_outcome
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import EXTRAPOLATED, Far, find_far
from unsoftmax.learners.stack.frame import Frame, find_frame, require_far
from unsoftmax.learners.stack.networks import learn_networks
from unsoftmax.learners.stack.order import find_causal, find_layers, require_feeding, spread
from unsoftmax.learners.stack.plain import learn_plain
from unsoftmax.learners.stack.polish import Polished, ask_wide, cut_heads, polish_deep, polish_wide, unpolished
from unsoftmax.learners.stack.star import read_confined, read_spread, read_star
from unsoftmax.models.attention_stack import AttentionStack as Stack
from unsoftmax.solvers.gauss_newton import LARGEST
from unsoftmax.solvers.layer_order import Order
from unsoftmax.solvers.stack_heads import factored
from unsoftmax.solvers.star import gap_rank
from unsoftmax.spec import OracleSpec

_SUPPOSING = (
    f"at most {CORE.heads_supposed} heads in all layers together where their numbers are not given, and no final norm"
)
"""What the upper end supposes, in words: a final norm takes ten to twenty times the closed form."""


@dataclass(frozen=True)
class AttentionStack:
    """Learn x <- x + Attn_l(norm x) [, x <- x + network_l(norm x)], l = 1..L, from the last token's vector.

    At infinity a pre-norm stack is one wide layer: tokens longer than all that layers write keep their normalised
    direction in every layer, so all heads of all layers see the same tokens and add up. They are told apart by algebra
    (see docs/theory/stacks.md), ordered by the 1/lambda term, and polished on the stack itself. Found, not given: the
    numbers of layers and heads, ranks, biases, LayerNorm or RMSNorm and its eps, causal or not, networks or none.
    Stacks without any norm are learned where attention is hard, by the paths that tokens take through the heads.
    layers and heads (per layer), where given, are held against what is found. polish=False, or more than some thousand
    parameters, leaves the heads as they were read: seven digits, and a stack that cannot be called.
    networks=True also looks for feed-forward networks with a smooth activation, neuron by neuron, at some ten times the
    queries: where they are found the encoder is whole and can be called.
    """

    layers: int | None = None
    heads: int | None = None
    norm: Literal["auto", "layer", "rms"] | None = "auto"
    final_norm: Literal["auto"] | bool = "auto"
    polish: bool = True
    networks: bool = False

    accepts = ("vectors",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if spec.outputs != spec.dim:
            raise InvalidArgument(
                f"AttentionStack learns layers with residuals, whose answers are as wide as tokens (got {spec.outputs} "
                f"outputs for dim {spec.dim})."
            )
        if spec.kind != "value" or spec.tolerance > 0 or spec.dtype == "float16" or spec.link is not None:
            raise InvalidArgument(
                "AttentionStack needs exact answers in float64 or float32 without a link: what heads write is read "
                "beside tokens a million times longer."
            )
        # Five frozen tokens, twice each, and the last: networks are told by these.
        longest = 2 * (STACK.frozen_tokens + 1) + 1
        if spec.domain.length_limit < longest:
            raise DomainError(
                f"AttentionStack needs sequences of {longest} tokens and max_length is {spec.domain.max_length}."
            )
        require_far(spec)
        ranges = {"heads": (STACK.norm_queries, self._most(spec.dim))}
        return Forecast(ranges=ranges, supposing=_SUPPOSING, model=Stack)

    def _most(self, d: int) -> int:
        """The closed form of the dearest stack as supposed, as often as networks and rounded answers take it."""
        sizes = [2**k for k in range(CORE.heads_supposed.bit_length()) if 2**k <= CORE.heads_supposed]
        layers = sizes if self.layers is None else [max(self.layers, 1)]
        heads = sizes if self.heads is None else [max(self.heads, 1)]
        given = self.layers is not None and self.heads is not None
        shapes = [(L, H) for L in layers for H in heads if given or CORE.heads_supposed >= L * H] or [
            (layers[0], heads[0])
        ]
        most = max(theory.attention_stack_queries(d, L, H, max(1, d // H), True) for L, H in shapes)
        plain = [theory.plain_stack_queries(d, L, H, max(1, d // H)) for L, H in shapes if d + 1 >= (1 + H) ** L]
        counted = STACK.most_over_count * (10 if self.networks else 1) * max(most, *plain, 0)
        return max(counted, self._most_unpolished(d, max(L * H for L, H in shapes)))

    def _most_unpolished(self, d: int, n: int) -> int:
        """What n heads that are not polished take between networks: every displacement read in full, once in a star and
        once more by itself, every last token by itself too."""
        star = d * (d + n + STACK.ray_answers_to_spare + 2)
        again = d * (STACK.answers_over_unknowns * (d + n) + 2 * STACK.opposite_pairs_again + 1)
        return int(2 * len(EXTRAPOLATED["float64"]) * (star * STACK.rays_asked_again + again))

    def most_of_one_layer(self, d: int, far: Far) -> int:
        """The closed form of the dearest layer without a network, once more, and a second reading at orthogonal
        displacements, at each length that is asked."""
        sizes = (2**k for k in range(CORE.heads_supposed.bit_length()) if 2**k <= CORE.heads_supposed)
        most = max(theory.attention_stack_queries(d, 1, H, max(1, d // H), True) for H in sizes)
        spread_out = STACK.answers_over_unknowns * (d + CORE.heads_supposed) + 2 * STACK.opposite_pairs_again + 1
        return len(far.lengths) * (2 * most + int(d * spread_out))

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._program(spec, seed)

    def _program(self, spec: OracleSpec, seed: int) -> Program:
        rng = np.random.default_rng(seed)
        frame = yield from find_frame(spec, rng)
        if self.norm not in ("auto", frame.norm):
            raise ModelMismatch(f"`norm` was given as {self.norm!r}, and one-token answers show {frame.norm!r}.")
        if self.final_norm not in ("auto", frame.final is not None):
            seen = "stay bounded: there is one" if frame.final else "are not bounded: there is none"
            raise ModelMismatch(f"`final_norm` was given as {self.final_norm}, and answers to long tokens {seen}.")
        told = self._from(frame, spec, rng, seed)
        if frame.final is not None:
            return (yield from told)
        limit = self._most(spec.dim)
        refusal = ModelMismatch(
            f"the next round would exceed the {limit} queries that such a stack may take: answers at other tokens did "
            "not confirm the heads that were told apart. This is no such stack, its scores are too strong, two of its "
            "heads attend alike, or its answers are too coarse."
        )
        return (yield from within(told, limit - STACK.most_norm_queries, refusal))

    def _from(self, frame: Frame, spec: OracleSpec, rng: np.random.Generator, seed: int) -> Program:
        """What stands behind the norm that was found."""
        if frame.norm is None:
            plain, error = yield from learn_plain(frame, spec, rng, seed, self.polish)
            self._compare(list(plain.sizes))
            return plain_outcome(plain, error)
        return (yield from self.behind((yield from find_far(frame, rng)), spec, seed))

    def behind(self, far: Far, spec: OracleSpec, seed: int) -> Program:
        """Layers behind the norm and beside the single tokens that were seen."""
        frame, rng = far.frame, far.rng
        yield from require_feeding(far)
        polished, layers, order = yield from self._in_order(far, seed)
        deep = self._deep(far, polished)
        polished = replace(polished, heads=spread(polished.heads, layers))
        self._compare([len(layer) for layer in layers])
        causal = (yield from find_causal(frame, rng)) if len(layers) > 1 and not far.places else False
        if self.networks and far.networks and not far.places and frame.final is None and frame.dtype == "float64":
            polished = (yield from learn_networks(far, polished.heads, layers, seed)) or polished
        if deep:
            polished = yield from polish_deep(far, polished, layers, seed)
        return outcome(far, polished, layers, order, causal, spec)

    def _deep(self, far: Far, polished: Polished) -> bool:
        """Whether the stack itself will be fitted to ordinary answers; behind a final norm that tells whether there
        are networks, too."""
        alone = not far.networks or (far.frame.final is not None and not far.places)
        return alone and self.polish and polished.heads.flat.size <= LARGEST

    def _in_order(self, far: Far, seed: int) -> Asking[tuple[Polished, list[list[int]], Order]]:
        """All heads and their layers; float32 shows some heads badly at one displacement, and then at another one."""
        last = STACK.tries - 1 if far.frame.dtype == "float32" else 0
        for first in range(last + 1):
            polished = yield from self._wide(far, seed, first)
            # Behind a final norm there may be networks, and then nothing else tells the layers.
            told_again = self._deep(far, polished) and not far.networks
            try:
                layers, order = yield from find_layers(far, polished.heads, told_again)
                break
            except ModelMismatch:
                if first == last:
                    raise
        return polished, layers, order

    def _wide(self, far: Far, seed: int, first: int) -> Asking[Polished]:
        """All heads at lambda -> infinity; a displacement at which they lead nowhere is drawn again."""
        for again in range(first, STACK.tries):
            step = self._heads if far.frame.final is None else self._behind_norm
            polished, misfit = yield from step(far, seed, again)
            if misfit <= far.rough:
                return polished
        raise ModelMismatch(
            f"{len(polished.heads)} heads were told apart at each of {STACK.tries} displacements, and none explain all "
            f"frozen contexts: they miss by {misfit:.2g}. This is no pre-norm stack, its scores are too strong, "
            f"{DEPENDENT}, or its answers are noisier than declared."
        )

    def _behind_norm(self, far: Far, seed: int, again: int) -> Asking[tuple[Polished, float]]:
        """Heads behind a final norm, cut to the ranks they show; and their misfit, absolute."""
        heads = cut_heads((yield from read_confined(far, again, "repair" if again else "main")))
        if not self.polish or heads.flat.size > LARGEST:
            return (yield from unpolished(far, [heads]))
        yield from ask_wide(far, heads)
        return polish_wide(far, heads, seed)

    def _heads(self, far: Far, seed: int, again: int) -> Asking[tuple[Polished, float]]:
        """Heads cut to the ranks they show, or in full where these do not explain all; and their misfit, absolute."""
        apart, phase = (yield from tell_apart(far, again)), "repair" if again else "main"
        large = not self.polish or STACK.head_size_over_width * apart.heads * far.frame.D > LARGEST
        # What is not polished is read in full: rows that only follow from the rank have lost two digits.
        # Beside networks every last token is asked by itself too, and the second reading gives these digits back.
        full = large and not far.networks and apart.heads * far.frame.D <= STACK.full_ray_logits
        star = yield from read_star(far, apart, far.clear if large else far.near, full=full, phase=phase)
        heads = fuller = cut_heads(star)
        if far.frame.dtype == "float32" and not far.networks:
            heads = cut_heads(star, gap_rank)
        if large or heads.flat.size > LARGEST:
            spread_out = cut_heads((yield from read_spread(far, heads)))
            return (yield from unpolished(far, [heads, spread_out]))
        if far.networks:
            yield from ask_wide(far, heads)
        polished, misfit = polish_wide(far, heads, seed)
        if misfit > far.clear and far.frame.dtype == "float64":
            star = yield from read_star(far, apart, far.near, full=True, phase="repair")
            return polish_wide(far, factored(star.W, star.c, star.P, far.frame.D, far.frame.D), seed)
        return replace(polished, fuller=fuller), misfit

    def _compare(self, sizes: list[int]) -> None:
        wrong = (self.layers is not None and self.layers != len(sizes)) or (
            self.heads is not None and set(sizes) != {self.heads}
        )
        if wrong:
            raise ModelMismatch(
                f"layers={self.layers} and heads={self.heads} were given, and {len(sizes)} layers of {sizes} heads "
                "were found (None finds them)."
            )
