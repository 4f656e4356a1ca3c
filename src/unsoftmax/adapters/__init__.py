"""Targets as oracles; heavy dependencies are imported only when an adapter is used."""

from unsoftmax.adapters.callable import oracle
from unsoftmax.adapters.onnx import onnx_session
from unsoftmax.adapters.remote.llama_cpp import llama_cpp
from unsoftmax.adapters.remote.oip import http
from unsoftmax.adapters.remote.openai import openai
from unsoftmax.adapters.remote.sglang import sglang
from unsoftmax.adapters.remote.tei import tei
from unsoftmax.adapters.tokens import token_oracle
from unsoftmax.adapters.torch import torch_module

__all__ = ["http", "llama_cpp", "onnx_session", "openai", "oracle", "sglang", "tei", "token_oracle", "torch_module"]
