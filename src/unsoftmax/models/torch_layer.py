"""A recovered layer as a PyTorch module.

A layer with positions, RMSNorm, sinks or caps as a causal PyTorch module.

Stacks and PyTorch: a recovered stack as a module, and the stack inside an nn.TransformerEncoder.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Array
from unsoftmax.models.features import Features
from unsoftmax.models.positions import Rope
from unsoftmax.models.projections import Projections, projections

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


class ServedModule(nn.Module):
    """(batch, N, d) -> (batch, N, outputs): every position is the query token of what came before it."""

    def __init__(self, layer: AttentionLayer) -> None:
        super().__init__()
        self.layer = layer
        features = layer.features or Features.none(layer.heads, layer.K.shape[1])
        arrays = {"K": layer.K, "Q": layer.Q, "c": layer.c, "O": layer.O, "V": layer.V, "constant": layer.constant}
        arrays |= {"key_bias": features.key_bias, "query_bias": features.query_bias}
        if features.key_form is not None and features.query_form is not None:
            arrays |= {"key_form": features.key_form, "query_form": features.query_form}
        if features.key_eps is not None and features.query_eps is not None:
            arrays |= {"key_eps": features.key_eps, "query_eps": features.query_eps}
        if layer.gamma is not None:
            arrays["gamma"] = layer.gamma
        if layer.beta is not None:
            arrays["beta"] = layer.beta
        if layer.sinks is not None:
            arrays["sinks"] = layer.sinks
        for name, value in arrays.items():
            self.register_parameter(name, nn.Parameter(_tensor(value, layer)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self._normed(tokens) if self.layer.norm in ("pre", "rms") else tokens
        keys = torch.einsum("bnd,hrd->bhnr", seen, self.K) + self.key_bias[:, None]
        queries = torch.einsum("bnd,hrd->bhnr", seen, self.Q) + self.query_bias[:, None]
        if hasattr(self, "key_form"):
            keys = _over(keys, self.key_form, self.key_eps)
            queries = _over(queries, self.query_form, self.query_eps)
        scores = self._turned(queries) @ self._turned(keys).transpose(2, 3)
        scores = scores + torch.einsum("bnd,hd->bhn", seen, self.c)[:, :, None]
        mixed = self._weights(scores) @ torch.einsum("bnd,hsd->bhns", seen, self.V)
        answers = torch.einsum("bhns,hos->bno", mixed, self.O) + self.constant
        answers = answers + tokens if self.layer.residual else answers
        return self._normed(answers) if self.layer.norm == "post" else answers

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.layer.norm == "rms" else x - x.mean(dim=-1, keepdim=True)
        x = x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + self.layer.eps)
        x = x * self.gamma if hasattr(self, "gamma") else x
        return x + self.beta if hasattr(self, "beta") else x

    def _turned(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows (batch, H, N, r) turned by the angle of their own position: only differences show in a score."""
        if not isinstance(self.layer.positions, Rope):
            return rows
        theta = torch.from_numpy(np.array(self.layer.positions.frequencies, dtype=np.float64)).to(rows.device)
        angle = torch.arange(rows.shape[2], dtype=torch.float64, device=rows.device)[:, None] * theta
        c, s, n = torch.cos(angle).to(rows.dtype), torch.sin(angle).to(rows.dtype), 2 * len(theta)
        even, odd = rows[..., 0:n:2], rows[..., 1:n:2]
        turned = torch.stack([even * c - odd * s, even * s + odd * c], dim=-1).flatten(-2)
        return torch.cat([turned, rows[..., n:]], dim=-1)

    def _weights(self, scores: torch.Tensor) -> torch.Tensor:
        layer, n = self.layer, scores.shape[-1]
        places = torch.arange(n, device=scores.device)
        distances = places[:, None] - places
        if layer.positions is not None and not isinstance(layer.positions, Rope):
            bias = layer.positions.bias(np.arange(n))
            table = _tensor(np.asarray(bias)[:, 0], layer).to(scores.device)
            scores = scores + table[:, distances.clamp(min=0)]
        if layer.softcap is not None:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        hidden = distances < 0 if layer.window is None else (distances < 0) | (distances >= layer.window)
        scores = scores.masked_fill(hidden, -torch.inf)
        if layer.sinks is None:
            return torch.softmax(scores, dim=-1)
        sinks = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]


def _over(rows: torch.Tensor, form: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
    """Rows (batch, H, N, r) over sqrt(row' form row + eps)."""
    size = torch.einsum("bhnr,hrs,bhns->bhn", rows, form, rows) + eps[:, None]
    return rows / torch.sqrt(size)[..., None]


try:
    import torch
    from torch import nn
except ImportError as error:
    raise InvalidArgument("to_torch needs PyTorch; install unsoftmax[torch].") from error


def as_module(layer: AttentionLayer) -> nn.Module:
    """nn.MultiheadAttention(batch_first=True) if the layer is one, else `LayerModule`; in the layer's number format."""
    if not layer.classic:
        return ServedModule(layer).eval()
    if layer.norm is None and not layer.residual and layer.outputs == layer.dim:
        for width in _widths(layer):
            parts = projections(layer, width)
            if parts is not None:
                return _multihead(layer, parts)
    return LayerModule(layer).eval()


def _widths(layer: AttentionLayer) -> list[int]:
    """Head widths of an nn.MultiheadAttention of this dimension with at least as many heads."""
    return [layer.dim // n for n in range(layer.heads, layer.dim + 1) if layer.dim % n == 0]


def _multihead(layer: AttentionLayer, parts: Projections) -> nn.MultiheadAttention:
    d, scale = layer.dim, math.sqrt(parts.width)
    module = nn.MultiheadAttention(d, d // parts.width, batch_first=True, dtype=_dtype(layer))
    weight, bias, out = np.zeros((3, d, d)), np.zeros((3, d)), np.zeros((d, d))
    rows = parts.heads * parts.width
    # The module divides the scores by sqrt(width); heads beyond ours write nothing.
    for i, block in enumerate((parts.query * scale, parts.key, parts.value)):
        weight[i, :rows] = block
    bias[0, :rows] = parts.query_bias * scale
    out[:, :rows] = parts.out
    with torch.no_grad():
        module.in_proj_weight.copy_(_tensor(weight.reshape(3 * d, d), layer))
        module.in_proj_bias.copy_(_tensor(bias.reshape(3 * d), layer))
        module.out_proj.weight.copy_(_tensor(out, layer))
        module.out_proj.bias.copy_(_tensor(layer.constant, layer))
    return module.eval()


class LayerModule(nn.Module):
    """Any AttentionLayer: (batch, N, d) -> (batch, N, outputs), every position as the query token in turn."""

    def __init__(self, layer: AttentionLayer) -> None:
        super().__init__()
        self.norm, self.residual, self.eps = layer.norm, layer.residual, layer.eps
        width = layer.dim if layer.norm == "pre" else layer.outputs
        gamma = np.ones(width) if layer.gamma is None else layer.gamma
        beta = np.zeros(width) if layer.beta is None else layer.beta
        arrays = {"K": layer.K, "Q": layer.Q, "c": layer.c, "O": layer.O, "V": layer.V, "constant": layer.constant}
        for name, value in (arrays | {"gamma": gamma, "beta": beta}).items():
            self.register_parameter(name, nn.Parameter(_tensor(value, layer)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self._layer_norm(tokens) if self.norm == "pre" else tokens
        queries = torch.einsum("bnd,hrd->bhnr", seen, self.Q)
        keys = torch.einsum("bnd,hrd->bhnr", seen, self.K)
        scores = queries @ keys.transpose(2, 3) + torch.einsum("bnd,hd->bhn", seen, self.c)[:, :, None]
        mixed = torch.softmax(scores, dim=-1) @ torch.einsum("bnd,hsd->bhns", seen, self.V)
        answers = torch.einsum("bhns,hos->bno", mixed, self.O) + self.constant
        answers = answers + tokens if self.residual else answers
        return self._layer_norm(answers) if self.norm == "post" else answers

    def _layer_norm(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.gamma, self.beta, self.eps)


def _dtype(layer: AttentionLayer) -> torch.dtype:
    return torch.float32 if layer.c.dtype == np.float32 else torch.float64


def _tensor(value: Array, layer: AttentionLayer) -> torch.Tensor:
    return torch.from_numpy(np.array(value)).to(_dtype(layer))
