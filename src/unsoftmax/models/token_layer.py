"""A one-layer language model without a network: ids in, logits out, its circuits over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, seeded

_SCORES = 2**22
"""Scores and hidden states of a block of sequences that are held at once: 32 MB."""


@dataclass(frozen=True, eq=False)
class TokenLayer(Model):
    """logits = origin + (u_N + sum_h sum_j alpha_hj (u_j - u_N) P_h) basis, u_j = embeddings[id_j] + positions[j].

    embeddings  (V, d): what a token alone answers, in coordinates of the answers; positions (T, d), the first is 0.
    W, c        (H, d, d), (H, d): the score of key j is u_j . (W_h u_N + c_h).
    P           (H, d, d): what head h adds for a difference of hidden states.
    basis       (d, V) orthonormal rows, origin (V,): the output layer.
    centred     answers are log-probabilities: rows of `basis` and the origin add up to 0.

    Learned models have no other freedom than the choice of `basis` and of the origin: hidden states are measured by
    what they answer. Of the weights they stand for, embeddings of tokens and of the first position show only together,
    and so do constants of the values; the query's bias is c. Scores show up to a constant per query: `scores`.
    """

    embeddings: Array
    positions: Array
    W: Array
    c: Array
    P: Array
    basis: Array
    origin: Array
    centred: bool = False

    def __post_init__(self) -> None:
        axes = {"embeddings": 2, "positions": 2, "W": 3, "c": 2, "P": 3, "basis": 2, "origin": 1}
        for name, ndim in axes.items():
            # One order in memory: products round alike after a file.
            object.__setattr__(self, name, floating(np.ascontiguousarray(getattr(self, name)), name, ndim))
        object.__setattr__(self, "centred", bool(self.centred))
        (V, d), H = self.embeddings.shape, len(self.W)
        shapes = {
            "positions": (len(self.positions), d),
            "W": (H, d, d),
            "c": (H, d),
            "P": (H, d, d),
            "basis": (d, V),
            "origin": (V,),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InvalidArgument(f"`{name}` must have shape {shape} (got {getattr(self, name).shape}).")
        if not len(self.positions):
            raise InvalidArgument("`positions` must have a row for every place, at least one.")

    @classmethod
    def of_weights(
        cls,
        E: Array,
        positions: Array,
        W_Q: Array,
        W_K: Array,
        W_V: Array,
        W_O: Array,
        U: Array,
        b_Q: Array | None = None,
        b_U: Array | None = None,
        *,
        centred: bool = False,
    ) -> Self:
        """From weights: E (V, d), positions (T, d), W_Q, W_K, W_V (H, d, k), W_O (H, k, d), U (d, V), b_Q (H, k).

        Scores are divided by sqrt(k). Biases of the keys cannot be seen; those of the values and the output are a part
        of b_U (V,). `centred` if the target answers with log-probabilities.
        """
        E, positions, W_Q, W_K, W_V, W_O, U = (
            np.asarray(a, dtype=np.float64) for a in (E, positions, W_Q, W_K, W_V, W_O, U)
        )
        d, (H, _, k) = E.shape[1], W_Q.shape
        OV = W_V @ W_O
        alone = np.eye(d) + OV.sum(axis=0)
        origin = np.zeros(U.shape[1]) if b_U is None else np.asarray(b_U, dtype=np.float64)
        if centred:
            U, origin = U - U.mean(axis=1, keepdims=True), origin - origin.mean()
        Q, R = np.linalg.qr(U.T)
        # e the residual stream, x = e A its answer alone: hidden states are measured by x.
        A = alone @ R.T
        if np.linalg.cond(A) > 1 / np.finfo(np.float64).eps:
            raise InvalidArgument("tokens alone do not show every direction: 1 + sum of the value maps is singular.")
        B = np.linalg.inv(A)
        K = B @ W_K / np.sqrt(k)
        W = np.einsum("hdk,hek->hde", K, B @ W_Q)
        c = np.zeros((H, d)) if b_Q is None else np.einsum("hdk,hk->hd", K, np.asarray(b_Q))
        first = positions[0]
        return cls((E + first) @ A, (positions - first) @ A, W, c, B @ OV @ R.T, Q.T, origin, centred)

    @classmethod
    def random(cls, width: int, vocabulary: int, heads: int, length: int, scale: float = 1.0, *, seed: int = 0) -> Self:
        """Gaussian weights, heads of width / heads dimensions, scores of standard deviation about `scale`."""
        rng = seeded(seed, dim=width, vocabulary=vocabulary, heads=heads, length=length)
        if not 1 <= heads <= width < vocabulary:
            raise InvalidArgument(f"needs 1 <= heads <= width < vocabulary (got {heads}, {width}, {vocabulary}).")
        d, k = width, width // heads
        E, positions = rng.standard_normal((vocabulary, d)), 0.5 * rng.standard_normal((length, d))
        W_Q, W_K, W_V = rng.standard_normal((3, heads, d, k)) / np.sqrt(d)
        W_O = rng.standard_normal((heads, k, d)) / np.sqrt(k)
        U = rng.standard_normal((d, vocabulary)) / np.sqrt(d)
        return cls.of_weights(E, positions, scale * W_Q, W_K, W_V, W_O, U)

    @property
    def dim(self) -> int:
        """1: a token is a single id."""
        return 1

    @property
    def width(self) -> int:
        """Dimension d of the hidden states."""
        return self.embeddings.shape[1]

    @property
    def vocabulary(self) -> int:
        """Number V of tokens."""
        return len(self.embeddings)

    @property
    def heads(self) -> int:
        """Number H of heads."""
        return len(self.W)

    @property
    def length(self) -> int:
        """Number T of places the model speaks for."""
        return len(self.positions)

    @property
    def outputs(self) -> int:
        return self.vocabulary

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """Ids (batch, N) -> logits (batch, V); log-probabilities if `centred`. Places matter: there are no counts."""
        ids = np.asarray(tokens)
        if counts is not None:
            return self(np.stack([np.repeat(row, n) for row, n in zip(ids, counts, strict=True)]))
        logits = self.hidden(ids) @ self.basis + self.origin
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True) if self.centred else np.asarray(logits)

    def hidden(self, ids: Array) -> Array:
        """Coordinates (batch, d) of the answers to ids (batch, N)."""
        self._check(ids)
        step = max(1, _SCORES // (ids.shape[1] * (self.width + self.heads)))
        blocks = [self._hidden(ids[i : i + step]) for i in range(0, len(ids), step)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.width))

    def _hidden(self, ids: Array) -> Array:
        u = self.embeddings[ids] + self.positions[: ids.shape[1]]
        last = u[:, -1]
        z = u - last[:, None]
        a = np.einsum("hde,be->bhd", self.W, last) + self.c
        mixed = attention_weights(np.matmul(a, z.transpose(0, 2, 1)), None) @ z
        return np.asarray(last + np.einsum("bhd,hde->be", mixed, self.P))

    def _check(self, ids: Array) -> None:
        if ids.ndim != 2 or not 1 <= ids.shape[1] <= self.length or ids.dtype.kind not in "iu":
            raise InvalidArgument(
                f"tokens must be integer ids of shape (batch, N), 1 <= N <= {self.length} (got {ids.dtype} "
                f"{ids.shape})."
            )
        if ids.size and not (ids.min() >= 0 and ids.max() < self.vocabulary):
            raise InvalidArgument(f"token ids must lie in 0..{self.vocabulary - 1} (got {ids.min()}..{ids.max()}).")

    def attention(self, ids: Array) -> Array:
        """Weights (batch, H, N) of the last token's attention."""
        ids = np.asarray(ids)
        self._check(ids)
        u = self.embeddings[ids] + self.positions[: ids.shape[1]]
        a = np.einsum("hde,be->bhd", self.W, u[:, -1]) + self.c
        return attention_weights(np.matmul(a, (u - u[:, -1:]).transpose(0, 2, 1)), None)

    def scores(self, head: int, key: int = 0, query: int = 1) -> Array:
        """The QK circuit (V, V): score of token i in place `key` for token j in place `query`, less j's own there."""
        last = self.embeddings + self.positions[query]
        a = last @ self.W[head].T + self.c[head]
        return np.asarray((self.embeddings + self.positions[key]) @ a.T - np.einsum("vd,vd->v", last, a))

    def values(self, head: int) -> Array:
        """The OV circuit (V, V): what full attention on token i adds to every logit, less its mean over tokens i."""
        E = self.embeddings - self.embeddings.mean(axis=0)
        return np.asarray(E @ self.P[head] @ self.basis)
