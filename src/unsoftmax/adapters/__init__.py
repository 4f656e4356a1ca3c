"""Targets as oracles; heavy dependencies are imported only when an adapter is used."""

from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.http import http
from unsoftmax.adapters.onnx import onnx_session
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.adapters.torch import torch_module

__all__ = ["http", "onnx_session", "oracle", "token_oracle", "torch_module"]
