"""Stacks and PyTorch: a recovered stack as a module, and the stack inside an nn.TransformerEncoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Array
from unsoftmax.models.feed_forward import Activation, FeedForward
from unsoftmax.models.stack_forms import with_affine

try:
    import torch
    from torch import nn
except ImportError as error:
    raise InvalidArgument("to_torch needs PyTorch; install unsoftmax[torch].") from error


class StackModule(nn.Module):
    """Any AttentionStack that can be called: (batch, N, d) -> (batch, N, d)."""

    def __init__(self, stack: AttentionStack) -> None:
        super().__init__()
        if stack.networks == "unknown":
            raise InvalidArgument("a stack with unknown networks has no answers, so it is no module either.")
        self.depth, self.norm, self.eps, self.causal = stack.depth, stack.norm, stack.eps, stack.causal
        self.final_norm, self.networks = stack.final_norm, stack.networks is not None
        self.activations = [n.activation for n in stack.networks or ()]
        skipped = ("causal", "eps", "final_norm", "unknown_networks", "norm", "activation")
        dtype = torch.float32 if stack.dtype == np.float32 else torch.float64
        for name, value in stack.parameters().items():
            if name.split(".")[-1] not in skipped:
                tensor = torch.from_numpy(np.array(value)).to(dtype)
                self.register_parameter(name.replace(".", "_"), nn.Parameter(tensor))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = tokens
        for i in range(self.depth):
            x = x + self._attended(self._seen(x), i)
            if self.networks:
                x = x + self._network(self._seen(x), i)
        if self.final_norm:
            x = self._seen(x)
            x = x if not hasattr(self, "gamma") else x * self.gamma
            x = x if not hasattr(self, "beta") else x + self.beta
        return x

    def _part(self, kind: str, i: int, name: str) -> torch.Tensor:
        part: torch.Tensor = getattr(self, f"{kind}_{i}_{name}")
        return part

    def _seen(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return x
        x = x - x.mean(-1, keepdim=True) if self.norm == "layer" else x
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)

    def _attended(self, seen: torch.Tensor, i: int) -> torch.Tensor:
        K, Q, c, O, V = (self._part("layer", i, name) for name in "KQcOV")
        queries, keys = torch.einsum("bnd,hrd->bhnr", seen, Q), torch.einsum("bnd,hrd->bhnr", seen, K)
        scores = queries @ keys.transpose(2, 3) + torch.einsum("bnd,hd->bhn", seen, c)[:, :, None]
        if self.causal:
            n = seen.shape[1]
            hidden = torch.ones(n, n, dtype=torch.bool, device=seen.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ torch.einsum("bnd,hsd->bhns", seen, V)
        return torch.einsum("bhns,hos->bno", mixed, O) + self._part("layer", i, "constant")

    def _network(self, seen: torch.Tensor, i: int) -> torch.Tensor:
        act = {"relu": torch.relu, "gelu": nn.functional.gelu, "silu": nn.functional.silu}[self.activations[i]]
        hidden = act(seen @ self._part("network", i, "A").T + self._part("network", i, "b"))
        if hasattr(self, f"network_{i}_G"):
            hidden = hidden * (seen @ self._part("network", i, "G").T + self._part("network", i, "g"))
        return hidden @ self._part("network", i, "C").T + self._part("network", i, "constant")


def from_encoder(encoder: Any) -> AttentionStack:
    """The stack inside an nn.TransformerEncoder(norm_first=True), gamma and beta inside heads and networks."""
    layers, networks = [], []
    for block in encoder.layers:
        if not block.norm_first:
            raise InvalidArgument("this encoder norms after every layer (norm_first=False); a stack norms before.")
        layers.append(_attention(block))
        networks.append(_feed_forward(block))
    final = encoder.norm
    rest = {} if final is None else {"gamma": _array(final.weight), "beta": _array(final.bias)}
    eps = float(encoder.layers[0].norm1.eps)
    return AttentionStack(tuple(layers), "layer", eps, False, tuple(networks), final is not None, **rest)


def _attention(block: Any) -> AttentionLayer:
    attention = block.self_attn
    weights = np.split(_array(attention.in_proj_weight), 3)
    biases = [None] * 3 if attention.in_proj_bias is None else np.split(_array(attention.in_proj_bias), 3)
    out = attention.out_proj
    query, key, value = zip(weights, biases, strict=True)
    final = (_array(out.weight), None if out.bias is None else _array(out.bias))
    layer = AttentionLayer.from_projections(query, key, value, final, attention.num_heads)
    return with_affine(layer, _array(block.norm1.weight), _array(block.norm1.bias))


def _feed_forward(block: Any) -> FeedForward:
    gamma, beta = _array(block.norm2.weight), _array(block.norm2.bias)
    A = _array(block.linear1.weight)
    name = str(getattr(block.activation, "__name__", type(block.activation).__name__)).lower()
    activation: Activation = "relu" if name == "relu" else "gelu"
    b = _array(block.linear1.bias) + A @ beta
    return FeedForward(A * gamma, b, _array(block.linear2.weight), _array(block.linear2.bias), activation)


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
