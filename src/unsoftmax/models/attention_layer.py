"""Attention layer with vector output: heads with their biases, residual, LayerNorm before or after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Array, Model, attention_weights, floating, seeded, tokens_of

Norm = Literal["pre", "post"]

_CODES: dict[Norm, int] = {"pre": 1, "post": 2}


@dataclass(frozen=True, eq=False)
class AttentionLayer(Model):
    """y(X) = constant + sum_h P_h sum_i softmax_i(x_i . (W_h x_N + c_h)) x_i [+ x_N], W_h = K_h'Q_h, P_h = O_h V_h.

    K, Q (H, r, d); c (H, d); O (H, outputs, s); V (H, s, d); constant (outputs,). `residual` adds x_N. `norm`:
    "pre" puts LayerNorm(gamma, beta, eps) on every token before the heads (the residual stays outside), "post" on
    the sum after them; gamma and beta (d,) default to ones and zeros.
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
        if self.norm not in (None, "pre", "post"):
            raise InvalidArgument(f"`norm` must be None, 'pre' or 'post' (got {self.norm!r}).")
        if self.residual and out != d:
            raise InvalidArgument(f"a residual needs as many outputs as inputs (got {out} and {d}).")
        width = d if self.norm == "pre" else out
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
        """Score matrices (H, d, d), the 1/sqrt(dh) of the target included."""
        return np.asarray(self.K.transpose(0, 2, 1) @ self.Q)

    @property
    def P(self) -> Array:
        """Value maps (H, outputs, d)."""
        return np.asarray(self.O @ self.V)

    def key_directions(self, q: Array) -> Array:
        return np.matmul(np.matmul(q[None], self.Q.transpose(0, 2, 1)), self.K) + self.c[:, None]

    def normalised(self, tokens: Array) -> Array:
        """What the heads see of the tokens (..., d)."""
        return self._layer_norm(tokens) if self.norm == "pre" else tokens

    def _layer_norm(self, x: Array) -> Array:
        y = layer_norm(x, self.eps)
        y = y if self.gamma is None else y * self.gamma
        return y if self.beta is None else y + self.beta

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, outputs)."""
        X = tokens_of(tokens, self.dim, self.c.dtype)
        seen = self.normalised(X)
        u = self.key_directions(seen[:, -1])
        scores = (seen @ u.transpose(1, 2, 0)).transpose(2, 0, 1)
        mixed = (attention_weights(scores, counts).transpose(1, 0, 2) @ seen).transpose(1, 0, 2)
        y = self.constant + (mixed @ self.V.transpose(0, 2, 1) @ self.O.transpose(0, 2, 1)).sum(axis=0)
        y = y + X[:, -1] if self.residual else y
        return np.asarray(self._layer_norm(y) if self.norm == "post" else y)

    def canonical(self) -> AttentionLayer:
        """The same function in the form a learner can know.

        pre: gamma and beta go into the heads, and W, c, P act on zero-mean tokens. post: P, constant and the mean of
        the sum are only known off the mean, so they are projected. No norm: unchanged.
        """
        if self.norm is None:
            return self
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
        """Fields as arrays, None left out; the norm as its number."""
        found = {name: value for name, value in super().parameters().items() if name != "norm"}
        return found if self.norm is None else found | {"norm": np.asarray(_CODES[self.norm])}

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        """Inverse of `parameters`."""
        values: dict[str, Any] = {name: a.item() if a.ndim == 0 else a for name, a in parameters.items()}
        code = int(values.pop("norm", 0))
        norm = next((name for name, number in _CODES.items() if number == code), None)
        if code and norm is None:
            raise InvalidArgument(f"`norm` must be 1 (pre) or 2 (post) in a file (got {code}).")
        return cls(**{**values, "residual": bool(values.get("residual", False)), "norm": norm})

    def to_torch(self) -> Any:
        """An nn.MultiheadAttention (batch_first) with the same outputs, or a small module if that cannot hold it."""
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
    def random(
        cls,
        dim: int,
        heads: int = 1,
        head_dim: int | None = None,
        *,
        outputs: int | None = None,
        scale: float = 1.0,
        bias: bool = True,
        residual: bool = False,
        norm: Norm | None = None,
        eps: float = 1e-5,
        seed: int = 0,
    ) -> Self:
        """Uniform weights of the usual sizes; `scale` multiplies the scores, `head_dim` defaults to dim / heads."""
        rng = seeded(seed, dim=dim, heads=heads)
        if heads < 1 or (head_dim is None and dim % heads):
            raise InvalidArgument(f"`heads` must divide dim (got {heads} for dim {dim}); or pass head_dim.")
        dh, out = dim // heads if head_dim is None else head_dim, dim if outputs is None else outputs
        size = np.sqrt(1.5 / dim)
        Wq, Wk, Wv = (rng.uniform(-size, size, (heads * dh, dim)) for _ in range(3))
        Wo = rng.uniform(-1, 1, (out, heads * dh)) / np.sqrt(dim)
        biases = [rng.uniform(-1, 1, n) / np.sqrt(dim) * bias for n in (heads * dh, heads * dh, heads * dh, out)]
        rest: dict[str, Any] = {"residual": residual, "norm": norm}
        if norm is not None:
            width = dim if norm == "pre" else out
            gamma, beta = 1 + 0.3 * rng.uniform(-1, 1, width), 0.2 * rng.standard_normal(width)
            rest |= {"gamma": gamma, "beta": beta, "eps": eps}
        parts = zip((Wq * scale, Wk, Wv, Wo), (biases[0] * scale, *biases[1:]), strict=True)
        query, key, value, final = parts
        return cls.from_projections(query, key, value, final, heads, **rest)


def layer_norm(x: Array, eps: float) -> Array:
    """(x - mean) / sqrt(variance + eps) over the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)))


def _centred(x: Array) -> Array:
    return np.asarray(x - x.mean(axis=-1, keepdims=True))
