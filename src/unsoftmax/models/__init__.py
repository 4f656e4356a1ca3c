"""Reference models: frozen callables on (batch, N, d), their files, and their distance modulo symmetries. In reading
order. A new class is one file below `base`; where the defaults do not do, it registers in `distance`, `equivalence`
and `nearby` from that file or from one beside it.

base                    what all share: the call, the softmax with counts, saving
single_head             one head, its W whole or in factors
multi_head              several
kernel_head             a head with another kernel
kernels                 the kernels
relu_network            a two-layer network of the query token
transformer             a head, then such a network
multi_head_transformer  several heads, then such a network
attention_behind        a head in front of an unknown network
heads_behind            several
attention_layer         a layer with vector answers
positions               how distance enters its scores
features                a bias or a norm of keys and queries before positions act
weighing                from scores to weights: cap, window, sinks, softmax
layer_scores            scores of two layers compared by their values
projections             heads as stacked projections, as frameworks store them
layer_files             a layer as flat arrays and back
random_layer            layers at random
torch_layer             a layer as a PyTorch module
onnx_layer              a layer as an ONNX graph
layer_behind            a layer at the bottom of a block whose network is unknown
attention_stack         layers on top of each other
feed_forward            the networks between them
stack_forms             stacks at random, with norms folded in, and as far as queries show them
token_head              a head over a vocabulary
embedded                heads of vectors that know the embeddings of a vocabulary
token_layer             a one-layer language model
output_layer            the output layer of one
explanations            gradients and attention weights of a model
files                   reading models back
distance                how far parameters are apart; classes register here
layer_distance          of layers
stack_distance          of stacks
token_layer_distance    of one-layer language models
equivalence             same function or not; classes register here
layer_equivalence       of layers and token heads
nearby                  copies with one parameter off by a known share; classes register here
"""

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
