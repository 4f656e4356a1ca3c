"""Reference models: frozen callables on (batch, N, d), their files, and their distance modulo symmetries."""

from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.base import Model
from unsoftmax.models.distance import distance
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.files import load
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.transformer import Transformer

__all__ = [
    "AttentionBehind",
    "LowRankHead",
    "Model",
    "MultiHead",
    "ReluNetwork",
    "SingleHead",
    "Transformer",
    "distance",
    "equivalent",
    "load",
]
