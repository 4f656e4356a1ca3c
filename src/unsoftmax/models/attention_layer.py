"""Attention layer with vector output: heads with their biases, positions, residual, a norm before or after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, tokens_of
from unsoftmax.models.features import Features
from unsoftmax.models.layer_files import flattened, parts_of
from unsoftmax.models.positions import Positions, Rope
from unsoftmax.models.weighing import PLAIN, Weighing

Norm = Literal["pre", "post", "rms"]


@dataclass(frozen=True, eq=False)
class AttentionLayer(Model):
    """y(X) = constant + sum_h P_h sum_i softmax_i(x_i . (W_h x_N + c_h)) x_i [+ x_N], W_h = K_h'Q_h, P_h = O_h V_h.

    K, Q (H, r, d); c (H, d); O (H, outputs, s); V (H, s, d); constant (outputs,). `residual` adds x_N. `norm`:
    "pre" puts LayerNorm(gamma, beta, eps) on every token before the heads (the residual stays outside), "rms" RMSNorm
    (no beta), "post" LayerNorm on the sum after them; gamma and beta (d,) default to ones and zeros.
    `positions`: how the distance N - i enters the scores, x_i'K_h'R(N - i)Q_h x_N with `Rope`. `features`: biases and
    norms of keys and queries. `weighing`: soft cap, sinks, window. Heads that share keys and values have equal K and V.
    """

    K: Array
    Q: Array
    c: Array
    O: Array
    V: Array
    constant: Array
    residual: bool = False
    norm: Norm | None = None
    gamma: Array | None = None
    beta: Array | None = None
    eps: float = 0.0
    positions: Positions | None = None
    features: Features | None = None
    weighing: Weighing = PLAIN

    def __post_init__(self) -> None:
        for name, ndim in (("K", 3), ("Q", 3), ("c", 2), ("O", 3), ("V", 3), ("constant", 1)):
            object.__setattr__(self, name, floating(getattr(self, name), name, ndim))
        H, d, r, s, out = self.heads, self.dim, self.K.shape[1], self.V.shape[1], len(self.constant)
        wanted = {"K": (H, r, d), "Q": (H, r, d), "c": (H, d), "O": (H, out, s), "V": (H, s, d)}
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise InvalidArgument(
                    f"`{name}` must have shape {shape} to go with the rest (got {getattr(self, name).shape})."
                )
        if self.norm not in (None, "pre", "post", "rms"):
            raise InvalidArgument(f"`norm` must be None, 'pre', 'post' or 'rms' (got {self.norm!r}).")
        if self.norm == "rms" and self.beta is not None:
            raise InvalidArgument("RMSNorm has no beta; a constant before the heads is what biases are for.")
        for part in (self.positions, self.features, self.weighing):
            if part is not None:
                part.check(H, r)
        if self.residual and out != d:
            raise InvalidArgument(f"a residual needs as many outputs as inputs (got {out} and {d}).")
        width = out if self.norm == "post" else d
        for name in ("gamma", "beta"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, floating(value, name, 1))
                if self.norm is None or len(getattr(self, name)) != width:
                    raise InvalidArgument(f"`{name}` belongs to a norm and must have shape ({width},).")

    @property
    def dim(self) -> int:
        return self.c.shape[1]

    @property
    def outputs(self) -> int:
        """Width of the answer."""
        return len(self.constant)

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.c.shape[0]

    @property
    def head_dim(self) -> int:
        """Largest rank a head's P_h can have."""
        return self.V.shape[1]

    @property
    def W(self) -> Array:
        """Score matrices (H, d, d), the 1/sqrt(dh) of the target included; with rotary positions at distance 0."""
        return np.asarray(self.K.transpose(0, 2, 1) @ self.Q)

    def W_at(self, distance: int) -> Array:
        """Score matrices (H, d, d) between tokens `distance` apart."""
        return np.asarray(self._turned_keys(distance).transpose(0, 2, 1) @ self.Q)

    def _turned_keys(self, distance: int) -> Array:
        if not isinstance(self.positions, Rope):
            return self.K
        return self.positions.turned(self.K.transpose(0, 2, 1)[:, :, None], np.array([distance]))[:, :, 0].transpose(
            0, 2, 1
        )

    @property
    def kv_groups(self) -> int:
        """Number of different pairs of keys and values: heads that share both are one group."""
        return len({(K.tobytes(), V.tobytes()) for K, V in zip(self.K, self.V, strict=True)})

    @property
    def sinks(self) -> Array | None:
        """Logit of each head's sink (H,), or None."""
        return self.weighing.sinks

    @property
    def softcap(self) -> float | None:
        """c of scores c tanh(s / c), or None."""
        return self.weighing.softcap

    @property
    def window(self) -> int | None:
        """Tokens that far away and farther are not seen, or None."""
        return self.weighing.window

    @property
    def ordered(self) -> bool:
        """Whether it matters where a token stands."""
        return self.positions is not None or self.window is not None

    @property
    def classic(self) -> bool:
        """Scores x . (W_h q + c_h) and softmax, nothing else."""
        return self.positions is None and self.features is None and self.weighing.usual and self.norm != "rms"

    @property
    def accepts_counts(self) -> bool:  # type: ignore[override]
        """Copies are a matter of their number only where order does not matter."""
        return not self.ordered and self.features is None and self.weighing.usual

    @property
    def P(self) -> Array:
        """Value maps (H, outputs, d)."""
        return np.asarray(self.O @ self.V)

    def key_directions(self, q: Array, distance: int = 0) -> Array:
        rows = np.matmul(q[None], self.Q.transpose(0, 2, 1))
        rows = rows if self.features is None else self.features.queries(rows)
        return np.matmul(rows, self._turned_keys(distance)) + self.c[:, None]

    def normalised(self, tokens: Array) -> Array:
        """What the heads see of the tokens (..., d)."""
        if self.norm == "rms":
            seen = rms_norm(tokens, self.eps)
            return seen if self.gamma is None else np.asarray(seen * self.gamma)
        return self._layer_norm(tokens) if self.norm == "pre" else tokens

    def _layer_norm(self, x: Array) -> Array:
        y = layer_norm(x, self.eps)
        y = y if self.gamma is None else y * self.gamma
        return y if self.beta is None else y + self.beta

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, outputs)."""
        X = tokens_of(tokens, self.dim, self.c.dtype)
        seen = self.normalised(X)
        weights = self._weights(seen, counts)
        mixed = (weights.transpose(1, 0, 2) @ seen).transpose(1, 0, 2)
        y = self.constant + (mixed @ self.V.transpose(0, 2, 1) @ self.O.transpose(0, 2, 1)).sum(axis=0)
        y = y + X[:, -1] if self.residual else y
        return np.asarray(self._layer_norm(y) if self.norm == "post" else y)

    def _weights(self, seen: Array, counts: Array | None) -> Array:
        """Attention weights (H, batch, N) of the last token."""
        if self.positions is None and self.features is None:
            u = self.key_directions(seen[:, -1])
            scores = (seen @ u.transpose(1, 2, 0)).transpose(2, 0, 1)
            if self.weighing.usual:
                return attention_weights(scores, counts)
        else:
            scores = self.scores(seen)
        if counts is not None:
            raise InvalidArgument("copies must be written out where positions, sinks or a window count tokens.")
        return self.weighing.weights(scores, np.arange(seen.shape[1] - 1, -1, -1))

    def scores(self, seen: Array) -> Array:
        """(batch, N, d) normalised tokens -> scores (H, batch, N) of the last one, before any soft cap."""
        distances = np.arange(seen.shape[1] - 1, -1, -1)
        keys = seen[None] @ self.K.transpose(0, 2, 1)[:, None]
        queries = np.matmul(seen[None, :, -1], self.Q.transpose(0, 2, 1))
        if self.features is not None:
            keys, queries = self.features.keys(keys), self.features.queries(queries)
        if self.positions is not None:
            keys = self.positions.turned(keys, distances)
        found = (keys @ queries[..., None])[..., 0] + (seen @ self.c.T).transpose(2, 0, 1)
        return np.asarray(found if self.positions is None else found + self.positions.bias(distances))

    def canonical(self) -> AttentionLayer:
        """The same function in the form a learner can know.

        rms: gamma goes into the heads. pre: gamma and beta go into the heads, and W, c, P act on zero-mean tokens.
        post: P, constant and the mean of the sum are only known off the mean, so they are projected. No norm:
        unchanged.
        """
        if self.norm is None:
            return self
        if self.norm == "rms":
            if self.gamma is None:
                return self
            scaled = {name: getattr(self, name) * self.gamma for name in ("K", "Q", "c", "V")}
            return replace(self, **scaled, gamma=None)
        if self.norm == "post":
            return replace(self, O=self.O - self.O.mean(axis=1, keepdims=True), constant=_centred(self.constant))
        gamma = np.ones(self.dim) if self.gamma is None else self.gamma
        beta = np.zeros(self.dim) if self.beta is None else self.beta
        return replace(
            self,
            K=_centred(self.K * gamma),
            Q=_centred(self.Q * gamma),
            c=_centred(gamma * self.key_directions(beta[None])[:, 0]),
            V=_centred(self.V * gamma),
            constant=self.constant + (self.P @ beta).sum(axis=0),
            gamma=None,
            beta=None,
        )

    def parameters(self) -> dict[str, Array]:
        """Fields as arrays, None left out; the norm as its number, parts under their names."""
        return flattened(self)

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        """Inverse of `parameters`."""
        return cls(**parts_of(parameters))

    def to_torch(self) -> Any:
        """An nn.MultiheadAttention (batch_first) with the same outputs, or a small module if that cannot hold it.

        Layers with positions, RMSNorm, sinks and the like become a causal module: every token looks back.
        """
        from unsoftmax.models.torch_layer import as_module

        return as_module(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX file: input "tokens" (batch, length, d), output "answers" (batch, length, outputs)."""
        from unsoftmax.models.onnx_layer import write_onnx

        write_onnx(self, path)

    @classmethod
    def from_projections(
        cls,
        query: tuple[Array, Array | None],
        key: tuple[Array, Array | None],
        value: tuple[Array, Array | None],
        out: tuple[Array, Array | None],
        heads: int,
        **rest: Any,
    ) -> Self:
        """From the usual weights and biases, each ((rows, d), (rows,) or None), rows grouped by head.

        The key bias shifts all scores of a sequence alike and has no effect; the value bias joins the constant.
        """
        Wq, Wk, Wv, Wo = (np.asarray(part[0]) for part in (query, key, value, out))
        d, dh = Wq.shape[1], len(Wq) // heads
        if len(Wq) % heads or len(Wv) % heads or Wk.shape != Wq.shape:
            raise InvalidArgument(f"projections must have rows for {heads} heads each (got {len(Wq)} and {len(Wv)}).")
        K, Q, V = (w.reshape(heads, -1, d) for w in (Wk, Wq / np.sqrt(dh), Wv))
        bq = np.zeros(len(Wq)) if query[1] is None else np.asarray(query[1])
        bv = np.zeros(len(Wv)) if value[1] is None else np.asarray(value[1])
        bo = np.zeros(len(Wo)) if out[1] is None else np.asarray(out[1])
        c = np.einsum("hrd,hr->hd", K, bq.reshape(heads, dh) / np.sqrt(dh))
        O = Wo.reshape(len(Wo), heads, -1).transpose(1, 0, 2)
        return cls(K, Q, c, O, V, bo + Wo @ bv, **rest)

    @classmethod
    def random(cls, dim: int, heads: int = 1, head_dim: int | None = None, **rest: Any) -> Self:
        """A layer of the usual sizes; see `models.random_layer.random_layer` for what else can be asked for."""
        from unsoftmax.models.random_layer import random_layer

        return random_layer(cls, dim, heads, head_dim, **rest)


def layer_norm(x: Array, eps: float) -> Array:
    """(x - mean) / sqrt(variance + eps) over the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)))


def rms_norm(x: Array, eps: float) -> Array:
    """x / sqrt(mean of squares + eps) over the last axis."""
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)))


def _centred(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))
