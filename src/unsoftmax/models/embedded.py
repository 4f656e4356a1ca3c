"""Heads of vectors that know the embeddings of a vocabulary, so that they answer on token ids as well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, floating
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.token_head import TokenHead


@dataclass(frozen=True, eq=False)
class EmbeddedHead(SingleHead):
    """A single head and embeddings (V, d): call it on vectors (batch, N, d) or on ids (batch, N).

    gap_error: stated error of the scores' differences between the tokens.
    """

    embeddings: Array | None = None
    gap_error: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) vectors or (batch, N) ids -> (batch,)."""
        return super().__call__(_vectors(self, tokens), counts)

    def over_vocabulary(self) -> TokenHead:
        """The same head as scores and values of tokens."""
        return _tokens(self)


@dataclass(frozen=True, eq=False)
class EmbeddedLowRankHead(LowRankHead):
    """As EmbeddedHead, with W kept as factors."""

    embeddings: Array | None = None
    gap_error: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) vectors or (batch, N) ids -> (batch,)."""
        return super().__call__(_vectors(self, tokens), counts)

    def over_vocabulary(self) -> TokenHead:
        """The same head as scores and values of tokens."""
        return _tokens(self)


def _check(head: EmbeddedHead | EmbeddedLowRankHead) -> None:
    if head.embeddings is None:
        raise InvalidArgument("`embeddings` (V, d) are required; without them use SingleHead or LowRankHead.")
    object.__setattr__(head, "embeddings", floating(head.embeddings, "embeddings", 2))
    if head.embeddings.shape[1] != head.dim:
        raise InvalidArgument(f"`embeddings` must have shape (V, {head.dim}) (got {head.embeddings.shape}).")


def _vectors(head: EmbeddedHead | EmbeddedLowRankHead, tokens: Array) -> Array:
    tokens = np.asarray(tokens)
    assert head.embeddings is not None
    return head.embeddings[tokens] if tokens.ndim == 2 and tokens.dtype.kind in "iu" else tokens


def _tokens(head: EmbeddedHead | EmbeddedLowRankHead) -> TokenHead:
    E = head.embeddings
    assert E is not None
    if isinstance(head, LowRankHead):
        keys, queries = E @ head.K, E @ head.Q
    else:
        keys, queries = E, E @ head.W.T
    if head.c is not None:
        keys, queries = np.hstack([keys, (E @ head.c)[:, None]]), np.hstack([queries, np.ones((len(E), 1))])
    errors = np.full((len(E), 1), head.gap_error / 2), np.ones((len(E), 1))
    return TokenHead((keys, queries), E @ head.v + head.constant, errors=errors)
