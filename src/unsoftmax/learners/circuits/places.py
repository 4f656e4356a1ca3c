"""Places further on, once everything else is known: the place of the last token is the only unknown of a prompt.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", places.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch
from unsoftmax.learners.circuits.cube import CLOSE
from unsoftmax.learners.circuits.frame import Frame
from unsoftmax.learners.core.base import Asking
from unsoftmax.probes.base import Array
from unsoftmax.solvers.circuit_newton import OnePlace, standard_errors
from unsoftmax.solvers.gauss_newton import Descent, descend

PROMPTS = 2
"""Prompts for a place: d numbers each, twice the unknowns."""

_STARTS = 24
"""Starts for a place: 0, the places before, and random vectors of their size."""

_HOW = Descent(damping=1e-3, down=8.0, iterations=60, patience=8, arrived=1e-30)
"""Answers are normed, so 1e-30 is rounding."""


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
    prompts = {j: rng.choice(tokens, (PROMPTS, j + 1)) for j in range(len(places), length)}
    for j, ids in prompts.items():
        y = yield from frame.ask(ids)
        x = frame.x[ids]
        keys = x[:, :-1] + places[:j]
        written = float(np.linalg.norm(y - x[:, -1]))
        problem = OnePlace(y, keys, x[:, -1], W, c, P)
        for start in _starts(places, rng):
            end = descend(problem, start, _HOW)
            if end.cost <= (CLOSE * written) ** 2:
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
    known = list(places[1:][::-1])[: _STARTS // 2]
    size = float(np.sqrt(np.mean(places[1:] ** 2))) if len(places) > 1 else 1.0
    random = [size * rng.standard_normal(places.shape[1]) for _ in range(_STARTS - 1 - len(known))]
    return [np.zeros(places.shape[1]), *known, *random]
