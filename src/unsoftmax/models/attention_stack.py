"""Attention layers on top of each other: x + Attn(norm x), with or without feed-forward networks between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from unsoftmax.errors import InvalidArgument, NotIdentifiable
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array, Model, attention_weights, floating, seeded, tokens_of
from unsoftmax.models.feed_forward import Activation, FeedForward
from unsoftmax.models.stack_forms import StackNorm, canonical, random_layer

_CODES: dict[StackNorm, int] = {"layer": 1, "rms": 2}
"""Numbers by which a file names a norm."""


@dataclass(frozen=True, eq=False)
class AttentionStack(Model):
    """x <- x + Attn_l(norm x) for every layer l, lowest first; then x <- x + network_l(norm x) if there are networks.

    layers: plain AttentionLayers on normalised tokens, whose gamma and beta are inside W, c, P and the constant.
    norm: "layer" (x off its mean over its deviation), "rms" (x over its root mean square) or None; `eps` joins the mean
    square. causal: a token sees itself and those before it. networks: one FeedForward per layer, None if there are
    none, or "unknown": then the heads are known and the stack cannot be called. final_norm: the same norm once more on
    top, with gamma and beta (d,).
    """

    layers: tuple[AttentionLayer, ...]
    norm: StackNorm | None = "layer"
    eps: float = 1e-5
    causal: bool = False
    networks: tuple[FeedForward, ...] | Literal["unknown"] | None = None
    final_norm: bool = False
    gamma: Array | None = None
    beta: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise InvalidArgument("a stack needs at least one layer.")
        d = self.dim
        for layer in self.layers:
            if layer.norm is not None or layer.residual or (layer.dim, layer.outputs) != (d, d):
                raise InvalidArgument(
                    f"`layers` must be AttentionLayers from {d} to {d} dimensions without norm and residual, which are "
                    "the stack's; AttentionLayer.canonical() brings gamma and beta into the heads."
                )
        if self.norm not in (None, "layer", "rms"):
            raise InvalidArgument(f"`norm` must be None, 'layer' or 'rms' (got {self.norm!r}).")
        if self.networks is not None and self.networks != "unknown":
            object.__setattr__(self, "networks", tuple(self.networks))
            if len(self.networks) != len(self.layers):
                raise InvalidArgument(f"`networks` must be one per layer (got {len(self.networks)}).")
        for name in ("gamma", "beta"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, floating(value, name, 1))
                if not self.final_norm or len(getattr(self, name)) != d:
                    raise InvalidArgument(f"`{name}` belongs to the final norm and must have shape ({d},).")

    @property
    def dim(self) -> int:
        return self.layers[0].dim

    @property
    def outputs(self) -> int:
        """Width of the answer."""
        return self.layers[0].outputs

    @property
    def depth(self) -> int:
        """Number of attention layers."""
        return len(self.layers)

    @property
    def heads(self) -> tuple[int, ...]:
        """Number of heads by layer, lowest first."""
        return tuple(layer.heads for layer in self.layers)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Number format of the parameters."""
        return self.layers[0].c.dtype

    def normalised(self, x: Array) -> Array:
        """What heads and networks see of tokens (..., d)."""
        if self.norm is None:
            return x
        x = x - x.mean(axis=-1, keepdims=True) if self.norm == "layer" else x
        # Long tokens are squared in float32 too: a power of two is taken out first, which rounds nothing.
        size = np.exp2(np.frexp(np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1))[1]).astype(x.dtype)
        scaled, eps = x / size, x.dtype.type(self.eps) / size / size
        return np.asarray(scaled / np.sqrt((scaled * scaled).mean(axis=-1, keepdims=True) + eps))

    def key_directions(self, q: Array) -> Array:
        """Of all heads of all layers, lowest first, for normalised query tokens q (batch, d)."""
        return np.concatenate([layer.key_directions(q) for layer in self.layers])

    def attention(self, tokens: Array, counts: Array | None = None) -> Array:
        """Weights (batch, all heads, N) with which the last token attends where all tokens are long.

        A token long against what the layers write keeps its direction through all of them, so every head of every
        layer sees the normalised tokens themselves: (batch, N, d) -> its softmax over them, heads lowest layer first.
        """
        seen = self.normalised(tokens_of(tokens, self.dim, self.dtype))
        scores = np.einsum("bnd,hbd->bhn", seen, self.key_directions(seen[:, -1]))
        return attention_weights(scores, None if counts is None else counts[:, None])

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        """(batch, N, d) -> (batch, d), the last token behind all layers."""
        return self.states(tokens, counts)[:, -1]

    def states(self, tokens: Array, counts: Array | None = None) -> Array:
        """All tokens behind all layers, (batch, N, d); with counts the last copy of each."""
        if self.networks == "unknown":
            raise NotIdentifiable(
                "the feed-forward networks of this stack are unknown functions of the query token, so its answers are "
                "not known; .layers has the heads of every layer and .attention(X) their weights where tokens are long."
            )
        X = tokens_of(tokens, self.dim, self.dtype)
        if counts is not None and self.causal:
            # Copies of a token see different numbers of themselves before them: they are no longer copies one layer up.
            return _expanded(self, X, np.asarray(counts))
        for i, layer in enumerate(self.layers):
            X = X + self._written(layer, self.normalised(X), counts)
            if self.networks is not None:
                X = X + self.networks[i](self.normalised(X))
        return self._on_top(X)

    def _written(self, layer: AttentionLayer, seen: Array, counts: Array | None) -> Array:
        """What one layer's heads add at every position (batch, N, d)."""
        u = np.einsum("bid,hrd->hbir", seen, layer.Q) @ layer.K[:, None] + layer.c[:, None, None]
        scores = u @ seen.transpose(0, 2, 1)[None]
        if self.causal:
            n = seen.shape[1]
            scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        weights = attention_weights(scores, None if counts is None else counts[:, None])
        mixed = weights @ seen[None]
        out = (mixed @ layer.V.transpose(0, 2, 1)[:, None] @ layer.O.transpose(0, 2, 1)[:, None]).sum(axis=0)
        return np.asarray(out + layer.constant)

    def _on_top(self, X: Array) -> Array:
        if not self.final_norm:
            return X
        y = self.normalised(X)
        y = y if self.gamma is None else y * self.gamma
        return np.asarray(y if self.beta is None else y + self.beta)

    def canonical(self) -> AttentionStack:
        """The same function in the form a learner can know.

        A LayerNorm drops the mean: heads see zero-mean tokens, and the means that layers write only show as their sum,
        which joins the highest layer's constant; a final LayerNorm drops that too. Without norms and networks a
        layer's constant shifts the c and the constants above, and only their sum on top shows.
        """
        return canonical(self)

    def parameters(self) -> dict[str, Array]:
        """All arrays by name: layers as "layer.0.K", networks as "network.0.A", the rest by field."""
        found: dict[str, Array] = {"causal": np.asarray(self.causal), "eps": np.asarray(self.eps)}
        found |= {"final_norm": np.asarray(self.final_norm)}
        found |= {"unknown_networks": np.asarray(self.networks == "unknown")}
        if self.norm is not None:
            found["norm"] = np.asarray(_CODES[self.norm])
        found |= {name: getattr(self, name) for name in ("gamma", "beta") if getattr(self, name) is not None}
        for i, layer in enumerate(self.layers):
            heads = {name: getattr(layer, name) for name in ("K", "Q", "c", "O", "V", "constant")}
            found |= {f"layer.{i}.{name}": value for name, value in heads.items()}
        if isinstance(self.networks, tuple):
            for i, network in enumerate(self.networks):
                found |= {f"network.{i}.{name}": value for name, value in network.parameters().items()}
        return found

    @classmethod
    def from_parameters(cls, parameters: dict[str, Array]) -> Self:
        """Inverse of `parameters`."""
        layers, networks = (_numbered(parameters, kind) for kind in ("layer", "network"))
        code = int(parameters.get("norm", np.asarray(0)))
        norm = next((name for name, number in _CODES.items() if number == code), None)
        if code and norm is None:
            raise InvalidArgument(f"`norm` must be 1 (layer) or 2 (rms) in a file (got {code}).")
        unknown = bool(parameters.get("unknown_networks", np.asarray(False)))
        known = tuple(FeedForward.from_parameters(part) for part in networks) or None
        return cls(
            tuple(AttentionLayer.from_parameters(part) for part in layers),
            norm,
            float(parameters.get("eps", np.asarray(0.0))),
            bool(parameters.get("causal", np.asarray(False))),
            "unknown" if unknown else known,
            bool(parameters.get("final_norm", np.asarray(False))),
            parameters.get("gamma"),
            parameters.get("beta"),
        )

    def astype(self, dtype: str) -> Self:
        """The same stack with parameters stored, and answers computed, in another number format."""
        kept = ("causal", "final_norm", "norm", "unknown_networks", "eps", "activation")
        cast = {k: v if k.split(".")[-1] in kept else v.astype(dtype) for k, v in self.parameters().items()}
        return self.from_parameters(cast)

    def to_torch(self) -> Any:
        """A module (batch, N, d) -> (batch, N, d), every position as the query token in turn."""
        from unsoftmax.models.torch_layer import StackModule

        return StackModule(self).eval()

    @classmethod
    def random(
        cls,
        dim: int,
        layers: int = 2,
        heads: int = 2,
        head_dim: int | None = None,
        *,
        norm: StackNorm | None = "layer",
        causal: bool = False,
        network: int = 0,
        activation: Activation = "gelu",
        gated: bool = False,
        final_norm: bool = False,
        bias: bool = True,
        scale: float = 1.0,
        eps: float = 1e-5,
        seed: int = 0,
    ) -> Self:
        """Gaussian weights with scores of about 1.5 `scale`; `network` is the width of the feed-forward networks."""
        rng = seeded(seed, dim=dim, layers=layers, heads=heads, network=network)
        if layers < 1 or heads < 1 or (head_dim is None and dim % heads):
            raise InvalidArgument(f"`layers` and `heads` must be positive and heads divide dim (got {heads}, {dim}).")
        dh = dim // heads if head_dim is None else head_dim
        drawn = [random_layer(dim, heads, dh, norm, bias, scale, rng) for _ in range(layers)]
        networks = [
            FeedForward.random(dim, network, rng, activation=activation, gated=gated)
            for _ in range(layers if network else 0)
        ]
        rest: dict[str, Any] = {}
        if final_norm:
            rest = {"gamma": 1 + 0.2 * rng.standard_normal(dim), "beta": 0.2 * rng.standard_normal(dim)}
            rest |= {"beta": None} if norm == "rms" else {}
        return cls(tuple(drawn), norm, eps if norm else 0.0, causal, tuple(networks) or None, final_norm, **rest)


def _expanded(stack: AttentionStack, X: Array, counts: Array) -> Array:
    """States with every token really repeated; of each token its last copy."""
    states = np.empty_like(X)
    for key in np.unique(counts, axis=0):
        rows = np.flatnonzero((counts == key).all(axis=1))
        states[rows] = stack.states(np.repeat(X[rows], key, axis=1))[:, np.cumsum(key) - 1]
    return states


def _numbered(parameters: dict[str, Array], kind: str) -> list[dict[str, Array]]:
    """Arrays named "kind.0.K", "kind.1.K", ... by number."""
    split = {name: name.split(".") for name in parameters if name.startswith(f"{kind}.")}
    numbers = sorted({int(parts[1]) for parts in split.values()})
    return [{parts[2]: parameters[name] for name, parts in split.items() if int(parts[1]) == i} for i in numbers]
