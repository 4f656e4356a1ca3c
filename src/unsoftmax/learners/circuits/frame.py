"""Every token alone: the row space of the output layer, and the hidden states of all tokens in its coordinates.

Theory: docs/theory/token-layer.md, "Circuits of a one-layer language model", every token alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.circuits.constants import CIRCUITS
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.output.reading import are_log_probabilities, centre
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.row_space import rank_of
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Frame:
    """`basis` (d, V) orthonormal and `origin` (V,) of the answers; `x` (V, d) what tokens alone answer, or NaN.

    `noise` is that of the answers, relative to their size `size`; `loudness` (d,): singular values of the answers that
    the basis was found from. Noise tilts a direction by as much more as these hardly show it.
    """

    basis: Array
    origin: Array
    x: Array
    centred: bool
    noise: float
    size: float
    loudness: Array

    @property
    def width(self) -> int:
        return len(self.basis)

    def coordinates(self, answers: Array) -> Array:
        """Coordinates (n, d) of answers (n, V); raises where they leave the space of tokens alone."""
        rows = (centre(answers) if self.centred else answers) - self.origin
        y = rows @ self.basis.T
        gaps = np.abs(rows - y @ self.basis).max(axis=1, initial=0.0)
        tilted = 1 + np.linalg.norm(y / self.loudness, axis=1)
        outside = float(gaps.max(initial=0.0))
        if not (gaps <= CORE.loud * self.noise * self.size * tilted).all():
            raise ModelMismatch(
                f"tokens alone answer in {self.width} dimensions, and longer prompts leave them (by "
                f"{outside / self.size:.2g} of the answers): something that is not linear stands behind the layer (a "
                "cap, a second output layer), or too few tokens were allowed to span the hidden states."
            )
        return np.asarray(y)

    def ask(self, ids: Array, phase: str = "main") -> Asking[Array]:
        """Coordinates (n, d) of the answers to prompts (n, N)."""
        answers = yield Probes(ids, phase=phase)
        return self.coordinates(answers)


def read_tokens(spec: OracleSpec, rng: np.random.Generator) -> Asking[Frame]:
    """Ask every token alone."""
    tokens = rng.permutation(spec.allowed)
    rows = np.zeros((0, spec.vocabulary or 0))
    centred, asked, found = spec.shows == "log-probabilities", 0, None
    while found is None:
        if asked == len(tokens):
            raise NotIdentifiable(
                f"the answers to all {asked} tokens alone are independent: hidden states are as wide as the "
                "vocabulary, or something that is not linear stands behind the unembedding. Circuits show where the "
                f"vocabulary is {CIRCUITS.tokens_to_spare + 1} tokens larger than the width, at least."
            )
        new = yield Probes(tokens[asked : asked + CIRCUITS.tokens_at_once, None], phase="values")
        centred = centred or (asked == 0 and are_log_probabilities(new))
        rows = np.concatenate([rows, centre(new) if centred else new])
        asked = len(rows)
        found = rank_of(np.linalg.svd(rows - rows[0], compute_uv=False)[:-1], rows.shape[1], CIRCUITS.tokens_to_spare)
    origin = rows[0]
    _, loudness, basis = np.linalg.svd(rows - origin, full_matrices=False)
    loudness, basis = loudness[: found.rank], basis[: found.rank]
    size = float(np.abs(rows).max())
    noise = max(found.noise / (np.sqrt(asked) + np.sqrt(rows.shape[1])) / size, rounding_unit(rows))
    if not noise <= CIRCUITS.largest_noise:
        raise NotIdentifiable(
            f"the answers are good to {noise:.1g} of their size; heads are told apart by what rounding to float32 or "
            f"to decimals hides ({CIRCUITS.largest_noise:.0e} is needed). Their width alone shows: learn with "
            "OutputLayer."
        )
    x = np.full((spec.vocabulary or 0, found.rank), np.nan)
    frame = Frame(basis, origin, x, centred, noise, size, loudness)
    x[tokens[:asked]] = frame.coordinates(rows)
    while asked < len(tokens):
        part = tokens[asked : asked + 8 * CIRCUITS.tokens_at_once]
        x[part] = yield from frame.ask(part[:, None], "values")
        asked += len(part)
    return frame
