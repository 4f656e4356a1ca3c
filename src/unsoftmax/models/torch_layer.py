"""A recovered layer as a PyTorch module."""

from __future__ import annotations

import math

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.base import Array
from unsoftmax.models.projections import Projections, projections

try:
    import torch
    from torch import nn
except ImportError as error:
    raise InvalidArgument("to_torch needs PyTorch; install unsoftmax[torch].") from error


def as_module(layer: AttentionLayer) -> nn.Module:
    """nn.MultiheadAttention(batch_first=True) if the layer is one, else `LayerModule`; in the layer's number format."""
    if not layer.classic:
        from unsoftmax.models.torch_served import ServedModule

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
