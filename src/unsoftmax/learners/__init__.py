"""Learners: one file per result. Each is a frozen dataclass of hyper-parameters with a program. In reading order; the
parts of a learner stand in the room in brackets, each with a map of its own, and all of them share `core`.

core              what a learner, a program and an outcome are; reductions; what can be read
single_head       Theorem 4.1 (single)
low_rank          Theorem 5.1 (single)
approximate       Theorem 6.1 (single)
membership        Theorem B.1, and labels at one bit per bit (labels)
orthogonal_heads  Proposition C.2 and the Hessian conjecture
multi_head        heads in general (heads)
relu_network      ReLU networks (relu)
transformer       Section 4.1, and by rays (behind)
attention_behind  attention in front of an unknown network (behind)
kernel_head       other kernels than the exponential (kernel)
attention_layer   vector answers (layer; rotary where positions count, block where a network stands behind or beside)
attention_stack   layers on top of each other (stack)
token_head        a head over token ids (tokens)
token_layer       circuits of a one-layer language model (circuits)
output_layer      the output layer of a language model (output)
explained         answers with gradients or attention maps, for `SingleHead`, `LowRank` and `MultiHead`
"""

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
