"""What the families of heads have in common, so that a difference can be placed: scores, values, and what isolates one.

y(X) = constant + sum_h O_h V_h sum_i softmax_i(x_i . (W_h x_N + c_h)) x_i [+ x_N], W_h = K_h'Q_h where it is stored as
factors. Scalar heads have O_h = 1 and V_h = v_h'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch

import numpy as np

from unsoftmax.comparing.constants import COMPARING
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model, attention_weights
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import LowRankHead, SingleHead


@dataclass(frozen=True, eq=False)
class Heads:
    """Stored W (H, d, d), or K and Q (H, r, d); c (H, d); V (H, s, d) and O (H, outputs, s); constant (outputs,)."""

    c: Array
    V: Array
    O: Array
    constant: Array
    stored: Array | None = None
    K: Array | None = None
    Q: Array | None = None
    residual: bool = False
    scalar: bool = True

    @property
    def dim(self) -> int:
        return int(self.c.shape[1])

    @property
    def count(self) -> int:
        """Number of heads H."""
        return len(self.c)

    @cached_property
    def W(self) -> Array:
        """Score matrices (H, d, d)."""
        if self.stored is not None:
            return self.stored
        assert self.K is not None
        assert self.Q is not None
        return np.asarray(self.K.transpose(0, 2, 1) @ self.Q)

    @cached_property
    def P(self) -> Array:
        """Value maps (H, outputs, d)."""
        return np.asarray(self.O @ self.V)

    def key_directions(self, q: Array) -> Array:
        """u_h with score x . u_h, (H, batch, d) for q (batch, d)."""
        if self.stored is not None:
            return np.asarray(q @ self.stored.transpose(0, 2, 1) + self.c[:, None])
        assert self.K is not None
        assert self.Q is not None
        return np.asarray((q @ self.Q.transpose(0, 2, 1)) @ self.K + self.c[:, None])

    def weights(self, X: Array) -> Array:
        """Attention of every head, (H, batch, N)."""
        u = self.key_directions(X[:, -1])
        return attention_weights((X @ u.transpose(1, 2, 0)).transpose(2, 0, 1), None)

    def contributions(self, X: Array) -> Array:
        """What every head writes, (H, batch, outputs)."""
        mixed = (self.weights(X).transpose(1, 0, 2) @ X).transpose(1, 0, 2)
        return np.asarray(mixed @ self.V.transpose(0, 2, 1) @ self.O.transpose(0, 2, 1))

    def __call__(self, X: Array) -> Array:
        """(batch, N, d) -> (batch,) or (batch, outputs)."""
        y = self.constant + self.contributions(X).sum(axis=0) + (X[:, -1] if self.residual else 0.0)
        return np.asarray(y[:, 0] if self.scalar else y)

    def with_scores(self, W: Array) -> Heads:
        """The same heads with other score matrices (H, d, d)."""
        return replace(self, stored=W, K=None, Q=None)

    def gaps(self, X: Array) -> Array:
        """Score of the first token over the last, (H, batch), for sequences of two tokens."""
        u = self.key_directions(X[:, -1])
        return np.asarray(np.einsum("bd,hbd->hb", X[:, 0] - X[:, 1], u))


@singledispatch
def heads_of(model: object) -> Heads | None:
    """The structure of a reference; None where it is not known to this room."""
    return None


@heads_of.register
def _(model: SingleHead) -> Heads | None:
    d = model.dim
    c = np.zeros((1, d)) if model.c is None else model.c[None]
    form = Heads(_double(c), _double(model.v)[None, None], np.ones((1, 1, 1)), np.array([float(model.constant)]),
                 stored=_double(model.W)[None])  # fmt: skip
    return _checked(form, model)


@heads_of.register
def _(model: LowRankHead) -> Heads | None:
    c = np.zeros((1, model.dim)) if model.c is None else model.c[None]
    form = Heads(_double(c), _double(model.v)[None, None], np.ones((1, 1, 1)), np.array([float(model.constant)]),
                 K=_double(model.K).T[None], Q=_double(model.Q).T[None])  # fmt: skip
    return _checked(form, model)


@heads_of.register
def _(model: MultiHead) -> Heads | None:
    if model.heads == 0:
        return None
    c = np.zeros(model.v.shape) if model.c is None else model.c
    form = Heads(_double(c), _double(model.v)[:, None], np.ones((model.heads, 1, 1)),
                 np.array([float(model.constant)]), stored=_double(model.W))  # fmt: skip
    return _checked(form, model)


@heads_of.register
def _(model: AttentionLayer) -> Heads | None:
    if model.norm is not None:
        return None
    form = Heads(_double(model.c), _double(model.V), _double(model.O), _double(model.constant), K=_double(model.K),
                 Q=_double(model.Q), residual=model.residual, scalar=False)  # fmt: skip
    return _checked(form, model)


def _checked(form: Heads, model: Model) -> Heads | None:
    """The form, if it is the model: a class may have grown features (positions, sinks) that this form lacks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 5, model.dim)) / np.sqrt(model.dim)
    size = float(np.linalg.norm(form.key_directions(X[:, -1]), axis=-1).max(initial=0.0))
    longer = X * (COMPARING.longer_for_caps * min(max(size**-0.5, 1e-6), 1e6) if size else 1.0)
    try:
        return form if all(agree(form, model.astype("float64"), x) for x in (X, longer)) else None
    except (TypeError, ValueError, AttributeError):
        return None


def agree(form: Heads, model: Callable[[Array], Array], X: Array) -> bool:
    """Whether this form answers these sequences as the model does."""
    known, found = model(X), form(X)
    same = known.shape == found.shape
    return same and bool(
        np.abs(known - found).max() <= COMPARING.same_function * max(1e-300, float(np.abs(known).max()))
    )


def _double(a: Array) -> Array:
    return np.asarray(a, dtype=np.float64)
