"""One-layer Transformers: the network on one-token queries, W by rays or by the paper's odd part (Section 4.1).

What reaches the network behind attention: is there a residual, and does the network have biases?

Theory: docs/theory/transformer.md, "Section 4.1", statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import shown_rounding
from unsoftmax.learners.attention_behind import require_rays, require_several, score_claim
from unsoftmax.learners.behind.bounded import read_bounded
from unsoftmax.learners.behind.constants import BEHIND
from unsoftmax.learners.behind.rays import read_scores
from unsoftmax.learners.behind.rows import read_heads_behind
from unsoftmax.learners.behind.split import split_network
from unsoftmax.learners.core import costs
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.reductions import odd_part, one_token
from unsoftmax.learners.relu.peel import refuse_if_unexplained
from unsoftmax.learners.relu_network import as_network, found_network, residual_claim
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.models.multi_head_transformer import MultiHeadTransformer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.transformer import Transformer as Model
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import on_grid, power_of_two, require_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class Wiring:
    """residual: x_N is added to the attention output; bias: the network is not homogeneous."""

    residual: bool
    bias: bool

    def __str__(self) -> str:
        found = [name for name, there in (("a residual", self.residual), ("biases", self.bias)) if there]
        return " and ".join(found) or "neither biases nor residual"


@dataclass(frozen=True)
class Transformer:
    """Learn TF(X) = g(sum_i softmax_i(x_i'W x_N) x_i [+ x_N]) with g a two-layer ReLU network.

    method="ray": W from r(2d - r) queries whatever g is; biases, a residual and A w_o = 0 are allowed and found.
    method="odd": the paper's, TF(X) - TF(-X) is a single head with v = A w_o; no biases, no residual, A w_o not 0.
    `network`: g if it is known; only W is then asked for. With bounded tokens (`max_norm`) method="ray" reads W along
    segments on which g is monotone, and g must be bias-free or known.
    heads=None: several heads, each with its own weights into g; H is found, and the model is a MultiHeadTransformer.
    """

    method: Literal["ray", "odd"] = "ray"
    heads: int | None = 1
    network: ReluNetwork | None = None

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if self.heads not in (1, None) or (self.heads is None and self.method == "odd"):
            raise InvalidArgument(
                f'`heads` must be 1, or None to find them by method="ray" (got {self.heads!r}, {self.method!r}).'
            )
        if self.heads is None:
            require_several(spec, "Transformer(heads=None)")
            return self._several_forecast(spec.dim)
        if self.network is not None and self.network.dim != spec.dim:
            raise InvalidArgument(f"`network` must have dim {spec.dim} like the target (got {self.network.dim}).")
        if self.method == "ray" and spec.domain.max_norm is None:
            require_rays(spec, "Transformer")
            ranges = self._network_ranges(spec.dim) | {"scores": costs.scores_range(spec.dim)}
            return Forecast({"values": spec.dim}, ranges=ranges, supposing=f"{costs.WIDE}, {costs.SCORES}", model=Model)
        require_pairs(spec, "Transformer")
        if self.method == "ray":
            ranges = self._network_ranges(spec.dim) | {"newton and repair": (0, 4 * spec.dim**2 + CORE.most_pilots)}
            return Forecast({"main": spec.dim**2}, ranges=ranges, supposing=costs.WIDE, model=Model)
        plain = SingleHead().forecast(_as_exact(spec))
        ranges = self._network_ranges(spec.dim) | {"pilot and repair": (0, 2 * (plain.extra or 0) + CORE.most_pilots)}
        phases = {phase: 2 * queries for phase, queries in plain.phases.items()}
        return Forecast(phases, ranges=ranges, supposing=costs.WIDE, model=Model)

    def _network_ranges(self, d: int) -> dict[str, tuple[int, int]]:
        return {} if self.network is not None else {"network": costs.network_range(d)}

    def _several_forecast(self, d: int) -> Forecast:
        # Dividing A among the heads asks about one query for each of its H m d entries.
        ranges = {
            "heads": costs.doubled(costs.heads_range(d, None)),
            "network": costs.network_range(d),
            "split": (0, 2 * CORE.heads_supposed * costs.widest(d) * d),
        }
        return Forecast(ranges=ranges, supposing=f"{costs.SEVERAL}, {costs.WIDE}", model=MultiHeadTransformer)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        if self.heads is None:
            return self._several(spec, seed)
        return self._by_rays(spec, seed) if self.method == "ray" else self._by_odd_part(spec, seed)

    def _by_rays(self, spec: OracleSpec, seed: int) -> Program:
        wiring = yield from read_wiring(spec, np.random.default_rng([seed, 1]))
        network, note, residual = yield from self._network(spec, seed, wiring)
        rng = np.random.default_rng(seed)
        try:
            if spec.domain.max_norm is not None:
                W = yield from read_bounded(spec, network, wiring.residual, self.network is None, rng)
                notes = (note, f"W along segments on which the network is monotone; {wiring}.")
                return Outcome(_joined(W, network, wiring.residual), notes, allows=Allowance(network=residual))
            scores = yield from read_scores(spec, rng)
        except NotIdentifiable as error:
            error.model = network
            raise
        notes = (note, f"rank of W: {scores.rank}; {wiring}.")
        allows = Allowance(score_claim(scores), residual)
        return Outcome(_joined(scores.W, network, wiring.residual), notes, allows=allows)

    def _several(self, spec: OracleSpec, seed: int) -> Program:
        """H heads: the network as single tokens see it, every W_h behind it, then which part reads which head."""
        wiring = yield from read_wiring(spec, np.random.default_rng([seed, 1]))
        if wiring.residual:
            raise ModelMismatch(
                "several heads with a residual are not read apart here: the residual's own weights are unknown. "
                "AttentionBehind(heads=None) reads every W all the same."
            )
        rng = np.random.default_rng(seed)
        # Heads first: those that cannot be read apart are told before the network is paid for.
        W, *_ = yield from read_heads_behind(spec, rng)
        network, note, residual = yield from self._network(spec, seed, wiring)
        model = yield from split_network(network, W, rng)
        claim = Claim(RELATIVE_ERROR, BEHIND.spare_gap, statement="of the answers, from how A is split among the heads")
        return Outcome(model, (note, f"{len(W)} heads; {wiring}."), allows=Allowance(claim, residual))

    def _by_odd_part(self, spec: OracleSpec, seed: int) -> Program:
        wiring = yield from read_wiring(spec, np.random.default_rng([seed, 1]))
        if wiring.bias or wiring.residual:
            raise ModelMismatch(
                f"the odd part is a single head only without biases and residual, and the target has {wiring}; "
                'use method="ray".'
            )
        network, note, residual = yield from self._network(spec, seed, wiring)
        v = 2 * network.canonical().linear[:-1]
        if np.linalg.norm(v) <= NO_DIRECTION * np.linalg.norm(network.canonical().neurons):
            error = NotIdentifiable(
                "A w_o = 0: the odd part of the target vanishes and does not show W (Section 4.1). The network is in "
                '.recovery.model; method="ray" reads W all the same.'
            )
            error.model = network
            raise error
        head = yield from odd_part(SingleHead().program(_as_exact(spec), seed))
        notes = (note, "W from the odd part, two queries each.", *head.notes)
        allows = replace(head.allows, network=residual)
        return Outcome(_joined(head.model.parameters()["W"], network, False), notes, head.claims, allows)

    def _network(self, spec: OracleSpec, seed: int, wiring: Wiring) -> Asking[tuple[ReluNetwork, str, Claim | None]]:
        """The feed-forward part, asked with sequences on which attention returns a chosen vector; and its error."""
        if self.network is not None:
            return self.network, f"the network was given: {self.network.width} neurons.", None
        if wiring.bias and spec.domain.max_norm is not None:
            raise DomainError(
                f"the network has biases and max_norm is {spec.domain.max_norm}: kinks outside that ball cannot be "
                "seen. Lift the limit, or pass `network` if it is known."
            )
        inner = spec
        if wiring.residual and spec.domain.max_norm is not None:
            # Past a residual a vector is asked as a token twice as long.
            inner = replace(spec, domain=replace(spec.domain, max_norm=spec.domain.max_norm / 2))
        found = yield from one_token(found_network(inner, seed, wiring.bias), zero_query=wiring.residual)
        refuse_if_unexplained(found)
        network, note = as_network(found, wiring.bias)
        return network, note, residual_claim(found)


def _as_exact(spec: OracleSpec) -> OracleSpec:
    """The spec under which the odd part is read by Theorem 4.1: what a tolerance leaves is stated for the whole model,
    since bounds for one head speak of a v that a network does not have."""
    return replace(spec, tolerance=0.0)


def _joined(W: Array, g: ReluNetwork, residual: bool) -> Model:
    return Model(W, g.A, g.w_o, g.b, g.b_o, g.lin, residual)


def read_wiring(spec: OracleSpec, rng: np.random.Generator) -> Asking[Wiring]:
    """Ten queries: [x], which gives g(x) or g(2x), beside [2x ; 0] and [4x ; 0], which give g(x) and g(2x) anyhow."""
    length = power_of_two(min(np.sqrt(spec.dim), spec.domain.norm_limit / 8))
    x = rng.standard_normal((BEHIND.vectors_of_wirings, spec.dim))
    x = on_grid(x / np.linalg.norm(x, axis=1, keepdims=True), 2.0, spec.dtype) * length
    alone = yield Probes(x[:, None, :], phase="pilot")
    rows = np.concatenate([2 * x, 4 * x, np.zeros((1, spec.dim))])
    y = yield Probes(np.stack([rows, np.zeros_like(rows)], axis=1), phase="pilot")
    once, twice, origin = y[: BEHIND.vectors_of_wirings], y[BEHIND.vectors_of_wirings : -1], float(y[-1])
    size = float(np.sqrt(np.mean(y**2)))
    # Rounding that nobody declared is no bias: [4x ; 0] beside twice [2x ; 0] is off by that of three answers.
    absolute, relative = shown_rounding(np.concatenate([alone, y]))
    rounding = max(spec.tolerance, absolute) + relative * float(np.abs(y).max())
    noise = CORE.felt * spec.eps * size + 4 * rounding

    def same(a: Array, b: Array) -> bool:
        return bool(np.abs(a - b).max() <= noise)

    bias = abs(origin) > noise or not same(twice, 2 * once)
    if same(alone, once):
        return Wiring(False, bias)
    if same(alone, twice):
        return Wiring(True, bias)
    raise ModelMismatch(
        "a single token x answers neither as attention on it alone would, g(x), nor with x added once more, g(2x): "
        "the target transforms tokens before or after attention. AttentionBehind reads W all the same."
    )
