"""A softmax head over a finite vocabulary: scores between token ids and one value per id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating

_ROWS = 8192
"""Sequences evaluated at once: the gathered factors of a block stay in cache."""


@dataclass(frozen=True, eq=False)
class TokenHead(Model):
    """f(ids) = sum_i softmax_i(S[id_i, id_N]) values[id_i] for ids (batch, N) in 0..V-1.

    scores     (keys, queries): factors (V, R) of S = keys queries'; a dense S (V, V) is accepted and factored.
    values     (V,)
    forbidden  ids about which nothing is said; None if there are none.
    own        (V,) score of the last token in its own place where that is not S_jj (targets with positions); or None.
    own_values (V,) its value there, if not `values`; a token alone is not in the last place but in the first.
    length     the only number of tokens (beside one) the model speaks for; None: any.
    errors     (left, right), (V, m) not negative: S_ij is stated to be right within left_i . right_j, up to a
               constant per column.

    Only gaps S_ij - S_jj show in answers: `canonical` has a zero diagonal.
    """

    scores: Any
    values: Array
    forbidden: Array | None = None
    own: Array | None = None
    own_values: Array | None = None
    length: int | None = None
    errors: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", floating(self.values, "values", 1))
        object.__setattr__(self, "scores", _factors(self.scores, "scores", self.vocabulary))
        if self.errors is not None:
            object.__setattr__(self, "errors", _factors(self.errors, "errors", self.vocabulary))
        for name in ("own", "own_values"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, floating(getattr(self, name), name, 1))
                if getattr(self, name).shape != self.values.shape:
                    raise InvalidArgument(f"`{name}` must have shape {self.values.shape} like the values.")
        if self.forbidden is not None:
            ids = np.unique(np.asarray(self.forbidden))
            if ids.size and (ids.dtype.kind not in "iu" or ids[0] < 0 or ids[-1] >= self.vocabulary):
                raise InvalidArgument(f"`forbidden` must be ids in 0..{self.vocabulary - 1}.")
            object.__setattr__(self, "forbidden", ids.astype(np.int64))

    @property
    def vocabulary(self) -> int:
        """Number V of token ids."""
        return len(self.values)

    @property
    def dim(self) -> int:
        """1: a token is a single id."""
        return 1

    @property
    def rank(self) -> int:
        """Number of columns R of the factors."""
        return int(self.scores[0].shape[1])

    @property
    def known(self) -> Array:
        """Ids the model speaks about, ascending."""
        ids = np.arange(self.vocabulary)
        return ids if self.forbidden is None else np.setdiff1d(ids, self.forbidden)

    def gaps(self, keys: Array | None = None, queries: Array | None = None) -> Array:
        """S_ij - S_jj (or S_ij - own_j) for ids that broadcast together; the whole (V, V) matrix if none are given.

        NaN where an id is forbidden.
        """
        K, Q = self.scores
        if keys is None or queries is None:
            every = np.arange(self.vocabulary)
            own = np.einsum("vr,vr->v", K, Q) if self.own is None else self.own
            return self._unless_forbidden(every[:, None], every, K @ Q.T - own, np.nan)
        i, j = np.broadcast_arrays(keys, queries)
        if self.own is None:
            gaps = np.einsum("...r,...r->...", K[i] - K[j], Q[j])
        else:
            gaps = np.einsum("...r,...r->...", K[i], Q[j]) - self.own[j]
        return self._unless_forbidden(i, j, gaps, np.nan)

    def bounds(self, keys: Array, queries: Array) -> Array:
        """Stated error of the gaps at ids that broadcast together: 0 if the model states none, inf where forbidden."""
        i, j = np.broadcast_arrays(keys, queries)
        bounds = np.zeros(i.shape)
        if self.errors is not None:
            left, right = self.errors
            reach = left[i] if self.own is not None else (left[i] + left[j]) * (i != j)[..., None]
            bounds = np.einsum("...r,...r->...", reach, right[j])
        return self._unless_forbidden(i, j, bounds, np.inf)

    def _unless_forbidden(self, i: Array, j: Array, values: Array, otherwise: float) -> Array:
        if self.forbidden is None:
            return np.asarray(values)
        return np.where(np.isin(i, self.forbidden) | np.isin(j, self.forbidden), otherwise, values)

    def canonical(self) -> TokenHead:
        """The same function with S_jj = 0: one more column in the factors."""
        K, Q = self.scores
        diagonal = np.einsum("vr,vr->v", K, Q) if self.own is None else self.own
        if not diagonal.any():
            return self
        ones = np.ones((self.vocabulary, 1), dtype=K.dtype)
        factors = np.hstack([K, ones]), np.hstack([Q, -diagonal[:, None]])
        own = None if self.own is None else np.zeros_like(self.own)
        return TokenHead(factors, self.values, self.forbidden, own, self.own_values, self.length, self.errors)

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """Ids (batch, N) -> (batch,)."""
        ids = np.asarray(tokens)
        self._check(ids, counts)
        y = np.empty(len(ids), dtype=self.values.dtype)
        for start in range(0, len(ids), _ROWS):
            rows = slice(start, start + _ROWS)
            y[rows] = self._answer(ids[rows], None if counts is None else counts[rows])
        return y

    def _answer(self, ids: Array, counts: Array | None) -> Array:
        K, Q = self.scores
        scores = np.matmul(K[ids], Q[ids[:, -1]][:, :, None])[:, :, 0]
        if self.own is not None:
            scores[:, -1] = self.own[ids[:, -1]]
        return np.asarray((attention_weights(scores, counts) * self.values_in(ids)).sum(axis=1))

    def values_in(self, ids: Array) -> Array:
        """Value of every token of sequences (batch, N) in its place."""
        values = self.values[ids]
        if self.own_values is not None and ids.shape[1] > 1:
            values[:, -1] = self.own_values[ids[:, -1]]
        return values

    def _check(self, ids: Array, counts: Array | None) -> None:
        if ids.ndim != 2 or ids.shape[1] < 1 or ids.dtype.kind not in "iu":
            raise InvalidArgument(
                f"tokens must be integer ids of shape (batch, N), N >= 1 (got {ids.dtype} {ids.shape})."
            )
        if ids.size and not (ids.min() >= 0 and ids.max() < self.vocabulary):
            raise InvalidArgument(f"token ids must lie in 0..{self.vocabulary - 1} (got {ids.min()}..{ids.max()}).")
        if self.forbidden is not None and np.isin(ids, self.forbidden).any():
            raise InvalidArgument("the sequences hold ids about which this model knows nothing (its `forbidden`).")
        if self.length is not None:
            lengths = np.full(len(ids), ids.shape[1]) if counts is None else counts.sum(axis=1)
            if not np.isin(lengths, (1, self.length)).all():
                raise InvalidArgument(f"this model was learned for sequences of {self.length} tokens and no others.")

    def parameters(self) -> dict[str, Array]:
        K, Q = self.scores
        named = {"keys": K, "queries": Q, "values": self.values}
        if self.errors is not None:
            named |= {"error_keys": self.errors[0], "error_queries": self.errors[1]}
        if self.forbidden is not None:
            named["forbidden"] = self.forbidden
        named |= {k: a for k, a in (("own", self.own), ("own_values", self.own_values)) if a is not None}
        if self.length is not None:
            named["length"] = np.asarray(self.length)
        return named

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        rest = dict(parameters)
        try:
            scores = rest.pop("keys"), rest.pop("queries")
            errors = (rest.pop("error_keys"), rest.pop("error_queries")) if "error_keys" in rest else None
            length = int(rest.pop("length").item()) if "length" in rest else None
        except KeyError as error:
            raise InvalidArgument(f"the parameter {error} is missing.") from error
        return cls(scores, errors=errors, length=length, **rest)

    def astype(self, dtype: str) -> Self:
        named = self.parameters()
        return self.from_parameters({k: a.astype(dtype) if a.dtype.kind == "f" else a for k, a in named.items()})

    @classmethod
    def random(cls, vocabulary: int, rank: int, scale: float = 1.0, *, seed: int = 0) -> Self:
        """Gaussian factors with scores of standard deviation `scale`, Gaussian values."""
        if not 0 <= rank <= vocabulary:
            raise InvalidArgument(f"`rank` must be between 0 and the vocabulary (got {rank} for {vocabulary}).")
        rng = np.random.default_rng(seed)
        K, Q = rng.standard_normal((vocabulary, rank)), rng.standard_normal((vocabulary, rank))
        values = rng.standard_normal(vocabulary)
        return cls((K * (scale / _deviation(K, Q)), Q), values)


def _deviation(K: Array, Q: Array) -> float:
    """Standard deviation of the entries of K Q', without forming it."""
    mean = float(K.mean(axis=0) @ Q.mean(axis=0))
    square = float(np.sum((K.T @ K) * (Q.T @ Q))) / (len(K) * len(Q))
    return float(np.sqrt(max(square - mean**2, 0.0))) or 1.0


def _factors(value: Any, name: str, vocabulary: int) -> tuple[Array, Array]:
    if isinstance(value, (tuple, list)) and len(value) == 2 and np.ndim(value[0]) == 2:
        left, right = (floating(part, name, 2) for part in value)
        if left.shape != right.shape or len(left) != vocabulary:
            raise InvalidArgument(
                f"`{name}` must be two factors of shape ({vocabulary}, R) to go with the values "
                f"(got {left.shape} and {right.shape})."
            )
        return left, right
    dense = floating(value, name, 2)
    if dense.shape != (vocabulary, vocabulary):
        raise InvalidArgument(
            f"`{name}` must be two factors ({vocabulary}, R), or dense ({vocabulary}, {vocabulary}) "
            f"(got {dense.shape})."
        )
    U, sizes, Vt = np.linalg.svd(dense.astype(np.float64))
    kept = sizes > sizes[:1] * vocabulary * np.finfo(np.float64).eps
    left, right = U[:, kept] * sizes[kept], Vt[kept].T
    return floating(left.astype(dense.dtype), name, 2), floating(right.astype(dense.dtype), name, 2)
