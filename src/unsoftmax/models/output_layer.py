"""The output layer of a language model, up to what no prompt shows: the row space of its unembedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, floating, seeded


@dataclass(frozen=True, eq=False)
class OutputLayer(Model):
    """logits = z basis for coordinates z (width,) of the hidden state: the unembedding up to an invertible matrix.

    basis            (width, V) orthonormal rows: the row space of the unembedding; of the centred one if `centred`.
    centred          only differences between logits are shown (log-probabilities): rows of `basis` add up to 0.
    softcap          c if logits are c tanh(l / c); None if they are not capped.
    singular_values  of the answers, largest first, past the width: the evidence for it. None if not from answers.
    metric           (width, width) M with (z - centre)' M (z - centre) = 1 for every hidden state behind a final norm;
                     None if not asked for. The unembedding is then known up to a rotation: `unembedding()`.
    centre           (width,) of that ellipsoid; None if 0.
    tokens           (m,) ids of the columns of `basis`, m then standing for V; None if it has one per token.
    """

    basis: Array
    centred: bool = False
    softcap: float | None = None
    singular_values: Array | None = None
    metric: Array | None = None
    centre: Array | None = None
    tokens: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "basis", floating(self.basis, "basis", 2))
        if not 0 < self.width <= self.vocabulary:
            raise InvalidArgument(f"`basis` must have shape (width, V) with width <= V (got {self.basis.shape}).")
        for name, shape in (("metric", (self.width, self.width)), ("centre", (self.width,))):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, floating(getattr(self, name), name, len(shape)))
                if getattr(self, name).shape != shape:
                    raise InvalidArgument(f"`{name}` must have shape {shape} (got {getattr(self, name).shape}).")
        if self.tokens is not None and np.shape(self.tokens) != (self.vocabulary,):
            raise InvalidArgument(f"`tokens` must name the {self.vocabulary} columns of `basis`.")
        if self.singular_values is not None:
            object.__setattr__(self, "singular_values", floating(self.singular_values, "singular_values", 1))

    @classmethod
    def random(cls, width: int, vocabulary: int, seed: int = 0) -> Self:
        """The row space of a Gaussian unembedding."""
        rng = seeded(seed, dim=width, vocabulary=vocabulary)
        return cls.of_unembedding(rng.standard_normal((vocabulary, width)))

    @classmethod
    def of_unembedding(cls, U: Array, *, centred: bool = False) -> Self:
        """The canonical form of an unembedding U (V, d), logits = U h; `centred` if only differences are shown."""
        U = np.asarray(U, dtype=np.float64)
        return cls(np.linalg.qr(U - U.mean(axis=0) if centred else U)[0].T, centred)

    @property
    def dim(self) -> int:
        return self.width

    @property
    def width(self) -> int:
        """Dimension of the hidden states that reach the logits."""
        return len(self.basis)

    @property
    def vocabulary(self) -> int:
        """Number V of tokens."""
        return self.basis.shape[1]

    @property
    def outputs(self) -> int:
        return self.vocabulary

    def __call__(self, hidden: Array, counts: Array | None = None) -> Array:
        """Logits (batch, V) of hidden states given by their coordinates (batch, width)."""
        logits = np.asarray(hidden) @ self.basis
        return logits if self.softcap is None else np.asarray(self.softcap * np.tanh(logits / self.softcap))

    def coordinates(self, logits: Array) -> Array:
        """Coordinates (batch, width) of the hidden states behind logits (batch, V) that are not capped."""
        return np.asarray(np.asarray(logits) @ self.basis.T)

    def unembedding(self) -> Array:
        """U diag(gamma) (V, width) up to a rotation of its columns; hidden states are gamma n + beta, |n| = sqrt(r).

        r is the dimension of their ellipsoid, the width behind an RMSNorm; needs `metric`.
        """
        if self.metric is None:
            raise InvalidArgument('the gauge is linear: learn with OutputLayer(gauge="rotation") to reduce it.')
        values, vectors = np.linalg.eigh(self.metric)
        # A LayerNorm leaves one direction without an axis.
        seen = values > values[-1] * len(values) * np.finfo(np.float64).eps
        axes = vectors[:, seen] / np.sqrt(values[seen] * np.count_nonzero(seen))
        return np.asarray(self.basis.T @ axes @ vectors[:, seen].T)

    def gamma(self, U: Array) -> Array:
        """|gamma| (width,) of the final norm for a known unembedding U (V, width) of full column rank."""
        U = np.asarray(U, dtype=np.float64)
        if U.shape != (self.vocabulary, self.width):
            raise InvalidArgument(f"`U` must have shape {(self.vocabulary, self.width)} (got {U.shape}).")
        # U diag(gamma) = unembedding() R for a rotation R: row norms of U^+ unembedding() do not see it.
        U = U - U.mean(axis=0) if self.centred else U
        return np.asarray(np.linalg.norm(np.linalg.lstsq(U, self.unembedding(), rcond=None)[0], axis=1))
