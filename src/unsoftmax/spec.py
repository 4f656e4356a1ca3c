"""What a learner may know about an oracle before its first query."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from unsoftmax.arguments import real, text, whole
from unsoftmax.errors import InvalidArgument

Kind = Literal["value", "approximate", "membership", "gradient", "attention"]
EXPLAINED = ("gradient", "attention")
"""Kinds whose answers carry more than the value: its gradient, or the attention weights behind it."""

Link = Literal["sigmoid", "exp", "log", "tanh"]
Shows = Literal["logits", "log-probabilities", "chosen", "top"]

LARGEST_DIM = 2**17
"""W alone then takes 137 GB, and its 2^34 queries 199 days at a thousand per second; a server that declares more is
mistaken, and the first probes would not fit into memory."""

INSIDE = 0.99
"""Share of a length, and of a limit on it, that the longest token of a design keeps to: rounding to a number format
must not carry it over (bfloat16's moves a norm by 0.4 % at most)."""

WITH_ROOM = 0.9
"""The same where tokens are drawn, moved or added up after their length was chosen: a tenth is room for that."""

_EPS = {name: float(np.finfo(name).eps) for name in ("float64", "float32", "float16")}


@dataclass(frozen=True)
class Domain:
    """Inputs the oracle accepts: token norm (Euclidean), sequence length with repetitions, forbidden token ids."""

    max_norm: float | None = None
    max_length: int | None = None
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_norm is not None:
            real("max_norm", self.max_norm)
        if self.max_norm is not None and not 1e-30 <= self.max_norm <= 1e30:
            raise InvalidArgument(
                f"`max_norm` must be between 1e-30 and 1e30 (got {self.max_norm}); omit it if there is no limit."
            )
        if not all(isinstance(token, (int, np.integer)) for token in self.forbidden):
            raise InvalidArgument(f"`forbidden` must list integer token ids (got {list(self.forbidden)[:5]}).")
        object.__setattr__(self, "forbidden", tuple(sorted({int(token) for token in self.forbidden})))
        if self.max_length is not None:
            whole("max_length", self.max_length)

    @property
    def norm_limit(self) -> float:
        return math.inf if self.max_norm is None else float(self.max_norm)

    @property
    def inside(self) -> float:
        """Norm of the longest tokens of a design (`INSIDE`)."""
        return INSIDE * self.norm_limit

    @property
    def with_room(self) -> float:
        """Norm of the longest tokens that are moved afterwards (`WITH_ROOM`)."""
        return WITH_ROOM * self.norm_limit

    @property
    def length_limit(self) -> float:
        return math.inf if self.max_length is None else int(self.max_length)


@dataclass(frozen=True)
class OracleSpec:
    """The contract of an oracle: dimension, kind of answer, noise bound, number format, domain.

    Kind "gradient": an answer is f and then df/dX, 1 + N d numbers; "attention": f and then the attention weights of
    H heads, 1 + H N numbers; H shows in the answers.
    `outputs` is None for scalar answers (batch,) and the width of vector answers (batch, outputs) otherwise.
    `vocabulary` is set for token oracles, whose probes are integer ids (batch, N); `dim` is then 1.
    `part` of the target answers (None: the target as it is), `position` is where the query token stands and the answer
    is taken (None: the target's own), `parts` could be asked instead. They do not change what a learner does, but what
    its result is about.
    `shows` is set for language models (`us.logit_oracle`): what an answer holds. "logits", "log-probabilities": one
    number per token; "chosen": the log-probabilities of the first `outputs` ids of the sequence after the prompt that
    follows them; "top": the ids of the outputs/2 likeliest tokens, then their log-probabilities.
    """

    dim: int
    kind: Kind = "value"
    tolerance: float = 0.0
    dtype: str = "float64"
    domain: Domain = field(default_factory=Domain)
    outputs: int | None = None
    max_batch: int | None = None
    link: Link | None = None
    vocabulary: int | None = None
    name: str | None = None
    part: str | None = None
    position: int | None = None
    parts: tuple[str, ...] = ()
    shows: Shows | None = None

    def __post_init__(self) -> None:
        whole("dim", self.dim)
        if self.dim > LARGEST_DIM:
            raise InvalidArgument(
                f"`dim` must be at most {LARGEST_DIM} (got {self.dim}): W alone would take "
                f"{8.0 * float(self.dim) ** 2:.2g} bytes."
            )
        if self.kind not in get_args(Kind):
            *others, last = map(repr, get_args(Kind))
            raise InvalidArgument(f"`kind` must be {', '.join(others)} or {last} (got {self.kind!r}).")
        real("tolerance", self.tolerance, closed=True)
        if not math.isfinite(self.tolerance):
            raise InvalidArgument(f"`tolerance` must be finite and not negative (got {self.tolerance}).")
        if self.dtype not in _EPS:
            raise InvalidArgument(f"`dtype` must be 'float64', 'float32' or 'float16' (got {self.dtype!r}).")
        for name in ("outputs", "max_batch"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.name is not None:
            text("name", self.name)
        if self.link not in (None, "sigmoid", "exp", "log", "tanh"):
            raise InvalidArgument(f"`link` must be 'sigmoid', 'exp', 'log', 'tanh' or None (got {self.link!r}).")
        self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        forbidden = self.domain.forbidden
        if self.vocabulary is None:
            if forbidden:
                raise InvalidArgument("`forbidden` lists token ids; it goes with a vocabulary (us.token_oracle).")
            return
        if not isinstance(self.vocabulary, (int, np.integer)) or self.vocabulary < 1:
            raise InvalidArgument(f"`vocabulary` must be an integer of at least 1 (got {self.vocabulary!r}).")
        if forbidden and (forbidden[0] < 0 or forbidden[-1] >= self.vocabulary):
            raise InvalidArgument(
                f"`forbidden` ids must lie in 0..{self.vocabulary - 1} (got {forbidden[0]}..{forbidden[-1]})."
            )
        if len(forbidden) == self.vocabulary:
            raise InvalidArgument("every id of the vocabulary is forbidden; nothing can be asked.")

    def shape(self, size: int, length: int, width: int = 1) -> tuple[int, ...]:
        """Shape of the answers to `size` sequences of `length` different rows; attention comes in `width` maps."""
        if self.kind == "gradient":
            return (size, 1 + length * self.dim)
        if self.kind == "attention":
            return (size, 1 + length * width)
        return (size,) if self.outputs is None else (size, self.outputs)

    @property
    def allowed(self) -> np.ndarray:
        """Ids a token oracle accepts, ascending; empty for oracles of vectors."""
        return np.setdiff1d(np.arange(self.vocabulary or 0), np.array(self.domain.forbidden, dtype=np.int64))

    @property
    def eps(self) -> float:
        """Unit of rounding of the declared number format."""
        return _EPS[self.dtype]
