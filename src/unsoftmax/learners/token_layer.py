"""A one-layer attention-only language model: QK and OV circuits of every head, from ids and logits.

Places further on, once everything else is known: the place of the last token is the only unknown of a prompt.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", statement.
Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.learners.circuits.constants import CIRCUITS
from unsoftmax.learners.circuits.cube import Lost, read_cube
from unsoftmax.learners.circuits.frame import Frame, read_tokens
from unsoftmax.learners.circuits.scores import SEARCH, read_scores
from unsoftmax.learners.circuits.values import Found, read_values
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.models.token_layer import TokenLayer as Layer
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.circuit_newton import OnePlace, standard_errors
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.gauss_newton import descend
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class TokenLayer:
    """Learn logits = (x + sum_h attention_h(x)) U over learned embeddings and places, from prompts of ids.

    length  number of places to learn; None: as many as the target takes, at most 16.
    """

    length: int | None = None

    accepts = ("logits",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        length = self._check(spec)
        n = len(spec.allowed)
        widest = min(CIRCUITS.widest_supposed, n - 2)
        most = max(
            theory.token_layer_queries(n, widest, H, widest // H, length) for H in (1, 2, 4, 8, 16) if widest >= H
        )
        # Designs that do not carry are drawn again: a cube each, and once the tokens in its first place.
        most += 2 * (most - n) + len(CIRCUITS.cube_places) * (widest + 16)
        supposing = "" if widest == n - 2 else f"hidden states of at most {CIRCUITS.widest_supposed} dimensions"
        ranges = {"main": (2 * min(CIRCUITS.cube_places), most - n)}
        return Forecast({"values": n}, ranges=ranges, supposing=supposing, model=Layer)

    def _check(self, spec: OracleSpec) -> int:
        """The number of places to learn."""
        if spec.shows not in ("logits", "log-probabilities"):
            raise InvalidArgument(
                f"TokenLayer learns from all logits or log-probabilities of a prompt (got {spec.shows!r}); make the "
                "oracle with us.logit_oracle(fn, vocabulary)."
            )
        if spec.dtype != "float64" or spec.tolerance > 0:
            raise NotIdentifiable(
                f"TokenLayer tells heads apart by the last digits of float64 answers (got dtype {spec.dtype}, "
                f"tolerance {spec.tolerance:g}); the width alone shows: learn with OutputLayer."
            )
        limit = spec.domain.length_limit
        length = int(min(CIRCUITS.places_supposed, limit)) if self.length is None else self.length
        if length > limit:
            raise DomainError(f"`length` must be at most what the target takes, {limit} tokens (got {length}).")
        if length < min(CIRCUITS.cube_places) + 1:
            raise DomainError(
                f"heads are told apart by prompts of {min(CIRCUITS.cube_places) + 1} tokens at least (got {length})."
            )
        if len(spec.allowed) < 2 * max(CIRCUITS.cube_places) + 2:
            raise InvalidArgument(
                f"TokenLayer needs {2 * max(CIRCUITS.cube_places) + 2} tokens (got {len(spec.allowed)})."
            )
        return length

    def program(self, spec: OracleSpec, seed: int) -> Program:
        return self._run(spec, self._check(spec), np.random.default_rng(seed))

    def _run(self, spec: OracleSpec, length: int, rng: np.random.Generator) -> Program:
        frame = yield from read_tokens(spec, rng)
        tokens = spec.allowed
        found = yield from _at_one_query(frame, tokens, length, rng)
        looked = yield from read_scores(frame, found, tokens, rng)
        parts = looked.W, looked.c, found.P
        places, off = yield from read_places(frame, parts, found.places, length, tokens, rng)
        # Tokens that may not be asked are not known.
        x = np.where(np.isnan(frame.x), 0.0, frame.x)
        if np.abs(places).max() <= NO_DIRECTION * np.abs(x).max():
            places = np.zeros_like(places)
        layer = Layer(x, places, *parts, frame.basis, frame.origin, frame.centred)
        return Outcome(layer, _notes(layer, looked.ranks, len(tokens)), allows=_allowed(found.error, looked.error, off))


def _at_one_query(frame: Frame, tokens: Array, length: int, rng: np.random.Generator) -> Asking[Found]:
    """Heads apart, and their values, at one last token; other tokens, or a smaller cube, where that does not carry."""
    losses: list[Lost] = []
    for K in CIRCUITS.cube_places:
        hopeless = bool(losses) and not losses[-1].again and losses[-1].places == K
        if length <= K or hopeless:
            continue
        phase = "repair" if losses else "main"
        try:
            cube = yield from read_cube(frame, tokens, K, rng, phase)
            return (yield from read_values(frame, cube, tokens, rng, phase))
        except Lost as lost:
            lost.places = K
            losses.append(lost)
    behind = "a network, a second layer or a final norm stands behind it"
    if all(lost.normed for lost in losses):
        behind = "a final norm stands behind it, which adds one dimension to every such set of prompts"
    raise ModelMismatch(
        f"no sum of attention heads over {frame.width} dimensions explains the answers: "
        f"{'; '.join(dict.fromkeys(map(str, losses)))}. The layer is not alone ({behind}), or its heads are more, or "
        "write into fewer dimensions, than this learner tells apart."
    )


def _allowed(values: float, scores: float | None, places: float) -> Allowance:
    """What the fits leave in the parameters; nothing is said where that of the scores was too large to be made."""
    if scores is None:
        return Allowance()
    bound = CIRCUITS.stated_errors * max(values, scores, places)
    said = f"of values, scores and places, {CIRCUITS.stated_errors:g} standard errors of the fits that they come from"
    return Allowance(parameters=Claim(RELATIVE_ERROR, bound, None, "measured", None, said))


def _notes(layer: Layer, ranks: tuple[int, ...], tokens: int) -> tuple[str, ...]:
    widths = [int(np.linalg.matrix_rank(P, tol=1e-8 * float(np.linalg.norm(P)))) for P in layer.P]
    said = [
        f"{layer.heads} heads of a model {layer.width} wide: they write into {widths} dimensions and look along "
        f"{list(ranks)}.",
        "scores are known up to a constant per query, values up to a constant per head; embeddings of tokens and of "
        "the first place show only together.",
    ]
    if not layer.positions.any():
        said.append("places do not show: the order of the tokens before the last does not matter.")
    if tokens < layer.vocabulary:
        said.append(f"{layer.vocabulary - tokens} tokens may not be asked: their embeddings are not known (set to 0).")
    return tuple(said)


def read_places(
    frame: Frame,
    layer: tuple[Array, Array, Array],
    places: Array,
    length: int,
    tokens: Array,
    rng: np.random.Generator,
) -> Asking[tuple[Array, float]]:
    """Places (length, d) from those known, given W, c and P of the layer, and the relative error of the new ones."""
    W, c, P = layer
    errors = [0.0]
    # Places may be nothing: they count beside tokens.
    size = float(np.linalg.norm(np.nanstd(frame.x, axis=0)))
    prompts = {j: rng.choice(tokens, (CIRCUITS.prompts_for_a_place, j + 1)) for j in range(len(places), length)}
    for j, ids in prompts.items():
        y = yield from frame.ask(ids)
        x = frame.x[ids]
        keys = x[:, :-1] + places[:j]
        written = float(np.linalg.norm(y - x[:, -1]))
        problem = OnePlace(y, keys, x[:, -1], W, c, P)
        for start in _starts(places, rng):
            end = descend(problem, start, SEARCH)
            if end.cost <= (CIRCUITS.unexplained_share * written) ** 2:
                places = np.concatenate([places, end.x[None]])
                off = standard_errors(problem.at(end.x), frame.noise * frame.size)
                errors.append(float(np.linalg.norm(off)) / size)
                break
        else:
            raise ModelMismatch(
                f"no vector added to the embeddings explains place {j}: places are not learned vectors, or places from "
                f"{j} on are not reached (pass length={j})."
            )
    return places[:length], max(errors)


def _starts(places: Array, rng: np.random.Generator) -> list[Array]:
    """Starts for a place: 0, the places before, and random vectors of their size."""
    known = list(places[1:][::-1])[: CORE.repairs]
    size = float(np.sqrt(np.mean(places[1:] ** 2))) if len(places) > 1 else 1.0
    random = [size * rng.standard_normal(places.shape[1]) for _ in range(2 * CORE.repairs - 1 - len(known))]
    return [np.zeros(places.shape[1]), *known, *random]
