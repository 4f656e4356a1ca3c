"""Learners: one file per result. Each is a frozen dataclass of hyper-parameters with a program."""

from unsoftmax.learners.approximate import Approximate
from unsoftmax.learners.attention_behind import AttentionBehind
from unsoftmax.learners.attention_layer import AttentionLayer
from unsoftmax.learners.attention_stack import AttentionStack
from unsoftmax.learners.core.base import Forecast, Learner, Outcome, Program
from unsoftmax.learners.kernel_head import KernelHead
from unsoftmax.learners.low_rank import LowRank
from unsoftmax.learners.membership import Membership
from unsoftmax.learners.multi_head import MultiHead
from unsoftmax.learners.orthogonal_heads import OrthogonalHeads
from unsoftmax.learners.output_layer import OutputLayer
from unsoftmax.learners.relu_network import ReluNetwork
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.learners.token_head import TokenHead
from unsoftmax.learners.token_layer import TokenLayer
from unsoftmax.learners.transformer import Transformer

__all__ = [
    "Approximate",
    "AttentionBehind",
    "AttentionLayer",
    "AttentionStack",
    "Forecast",
    "KernelHead",
    "Learner",
    "LowRank",
    "Membership",
    "MultiHead",
    "OrthogonalHeads",
    "OutputLayer",
    "Outcome",
    "Program",
    "ReluNetwork",
    "SingleHead",
    "TokenHead",
    "TokenLayer",
    "Transformer",
]
