"""Targets as oracles, in reading order; heavy dependencies are imported only when an adapter is used.

callable         any callable: `us.oracle`, and what explains its answers
tokens           a callable on token ids: `us.token_oracle`
logits           a language model: `us.logit_oracle`
positions        which part of a target answers, and at which position
torch            PyTorch modules
torch_explained  those that explain their answers: gradients, attention weights
embeds           language models in PyTorch that take vectors
onnx             ONNX files
remote           models on servers
"""

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
