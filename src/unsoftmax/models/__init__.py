"""Reference models: frozen callables on (batch, N, d), their files, and their distance modulo symmetries."""

from unsoftmax.models import (  # noqa: F401  (they register what they compare)
    layer_distance,
    layer_equivalence,
    stack_distance,
    token_layer_distance,
)
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.models.base import Model
from unsoftmax.models.distance import distance
from unsoftmax.models.embedded import EmbeddedHead, EmbeddedLowRankHead
from unsoftmax.models.equivalence import equivalent
from unsoftmax.models.features import Features
from unsoftmax.models.feed_forward import FeedForward
from unsoftmax.models.files import load
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.kernels import Kernel
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.multi_head_transformer import MultiHeadTransformer
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.models.positions import Alibi, DistanceBias, Rope
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.token_head import TokenHead
from unsoftmax.models.token_layer import TokenLayer
from unsoftmax.models.transformer import Transformer
from unsoftmax.models.weighing import Weighing

__all__ = [
    "Alibi",
    "AttentionBehind",
    "DistanceBias",
    "EmbeddedHead",
    "EmbeddedLowRankHead",
    "AttentionLayer",
    "AttentionStack",
    "FeedForward",
    "Features",
    "HeadsBehind",
    "Kernel",
    "KernelHead",
    "LayerBehind",
    "LowRankHead",
    "Model",
    "MultiHead",
    "MultiHeadTransformer",
    "OutputLayer",
    "ReluNetwork",
    "Rope",
    "SingleHead",
    "TokenHead",
    "TokenLayer",
    "Transformer",
    "Weighing",
    "distance",
    "equivalent",
    "load",
]
