"""How far apart two models' parameters are, modulo what no query can tell apart."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.attention_behind import AttentionBehind
from unsoftmax.models.base import Array, Model
from unsoftmax.models.heads_behind import HeadsBehind
from unsoftmax.models.kernel_head import KernelHead
from unsoftmax.models.multi_head import MultiHead, equal_heads
from unsoftmax.models.multi_head_transformer import MultiHeadTransformer
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.models.relu_network import ReluNetwork
from unsoftmax.models.single_head import LowRankHead, SingleHead
from unsoftmax.models.token_head import TokenHead
from unsoftmax.models.transformer import Transformer


@singledispatch
def distance(model: Model, other: Model) -> float:
    """Max relative (Frobenius) parameter error of `model` against `other`, modulo the class's symmetries."""
    raise InvalidArgument(f"no distance is defined for {type(model).__name__}.")


def relative(a: Array, b: Array) -> float:
    """||a - b|| / ||b||, or ||a|| where b = 0."""
    if np.shape(a) != np.shape(b):
        raise InvalidArgument(f"parameters of shapes {np.shape(a)} and {np.shape(b)} cannot be compared.")
    gap, size = float(np.linalg.norm(np.asarray(a) - b)), float(np.linalg.norm(b))
    return gap / size if size else gap


def _offset_gap(a: Array | None, b: Array | None, like: Array) -> float:
    zero = np.zeros_like(like)
    return 0.0 if a is None and b is None else relative(zero if a is None else a, zero if b is None else b)


@distance.register
def _(model: SingleHead, other: Model) -> float:
    if not isinstance(other, (SingleHead, LowRankHead)):
        raise InvalidArgument(f"a SingleHead cannot be compared with a {type(other).__name__}.")
    return max(relative(model.W, other.W), _rest_of_head(model, other))


@distance.register
def _(model: LowRankHead, other: Model) -> float:
    if isinstance(other, SingleHead):
        return max(relative(model.W, other.W), _rest_of_head(model, other))
    if not isinstance(other, LowRankHead):
        raise InvalidArgument(f"a LowRankHead cannot be compared with a {type(other).__name__}.")
    # ||K1 Q1' - K2 Q2'||_F through two thin QR factorisations: no d x d matrix is formed.
    R = np.linalg.qr(np.hstack([model.K, -other.K]))[1] @ np.linalg.qr(np.hstack([model.Q, other.Q]))[1].T
    size = np.linalg.norm(np.linalg.qr(other.K)[1] @ np.linalg.qr(other.Q)[1].T)
    gap = float(np.linalg.norm(R))
    return max(gap / float(size) if size else (0.0 if gap == 0 else np.inf), _rest_of_head(model, other))


def _rest_of_head(model: SingleHead | LowRankHead, other: SingleHead | LowRankHead) -> float:
    constant = (
        0.0 if model.constant == other.constant else relative(np.array([model.constant]), np.array([other.constant]))
    )
    return max(relative(model.v, other.v), _offset_gap(model.c, other.c, other.v), constant)


@distance.register
def _(model: MultiHead, other: Model) -> float:
    if not isinstance(other, MultiHead):
        raise InvalidArgument(f"a MultiHead cannot be compared with a {type(other).__name__}.")
    # Equal W and v = 0 show in no answer: what can be compared is the canonical form.
    first, second = model.canonical(), other.canonical()
    if first.heads == second.heads or model.heads != other.heads:
        model, other = first, second
    mine, true = (list(zip(m.W, m.v, _offsets(m), strict=True)) for m in (model, other))
    cost = [[max(relative(W, W2), relative(v, v2), beside(c, c2, W2)) for W2, v2, c2 in true] for W, v, c in mine]
    constant = beside(np.array([model.constant]), np.array([other.constant]), other.v)
    return max(_matched(cost, model.heads, other.heads), constant)


def _offsets(model: MultiHead) -> Array:
    return np.zeros_like(model.v) if model.c is None else model.c


def beside(a: Array, b: Array, matrix: Array) -> float:
    """||a - b|| relative to b, or to the matrix it stands beside where b is 0."""
    size = float(np.linalg.norm(b)) or float(np.linalg.norm(matrix)) or 1.0
    return float(np.linalg.norm(a - b)) / size


@distance.register
def _(model: ReluNetwork, other: Model) -> float:
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    if not isinstance(other, ReluNetwork):
        raise InvalidArgument(f"a ReluNetwork cannot be compared with a {type(other).__name__}.")
    first, second = model.canonical(), other.canonical()
    a, b = first.neurons, second.neurons
    count = max(len(a), len(b))
    # A neuron that only one side has is compared with the zero neuron.
    a, b = (np.vstack([rows, np.zeros((count - len(rows), model.dim + 1))]) for rows in (a, b))
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)
    rows, columns = linear_sum_assignment(squares - 2 * np.abs(a @ b.T))
    a, b = a[rows], b[columns]
    gap = np.minimum(np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1))
    size = max(float(np.linalg.norm(b)), float(np.linalg.norm(second.linear))) or 1.0
    linear = float(np.linalg.norm(first.linear - second.linear))
    return max(float(np.linalg.norm(gap)), linear) / size


@distance.register
def _(model: AttentionBehind, other: Model) -> float:
    if not isinstance(other, (AttentionBehind, Transformer, SingleHead, LowRankHead)):
        raise InvalidArgument(f"an AttentionBehind cannot be compared with a {type(other).__name__}.")
    return relative(model.W, other.W)


@distance.register
def _(model: HeadsBehind, other: Model) -> float:
    if not isinstance(other, (HeadsBehind, MultiHeadTransformer, MultiHead)):
        raise InvalidArgument(f"a HeadsBehind cannot be compared with a {type(other).__name__}.")
    if isinstance(other, MultiHeadTransformer):
        other = _merged(other)
    elif isinstance(other, MultiHead):
        other = other.canonical()
    return _matched([[relative(W, W2) for W2 in other.W] for W in model.W], model.heads, other.heads)


@distance.register
def _(model: MultiHeadTransformer, other: Model) -> float:
    """W and the weights of every head up to the order of heads, neurons as in networks.

    A neuron seen from one head is w_k A_hk: free of the scale that w_o and A share; a linear part is compared as such.
    """
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    if not isinstance(other, MultiHeadTransformer):
        raise InvalidArgument(f"a MultiHeadTransformer cannot be compared with a {type(other).__name__}.")
    model, other = _merged(model), _merged(other)
    if model.heads != other.heads:
        return float("inf")
    gaps = [[relative(W, W2) for W2 in other.W] for W in model.W]
    order = linear_sum_assignment(np.minimum(np.array(gaps).reshape(model.heads, -1), 1e300))[1]
    return max(_matched(gaps, model.heads, other.heads), distance(_stacked(model), _stacked(other, order)))


def _merged(model: MultiHeadTransformer) -> MultiHeadTransformer:
    """Heads of equal W attend alike: what reads them adds up; heads that nothing reads are left out."""
    groups = equal_heads(MultiHead(model.W, np.zeros(model.W.shape[:2])), 1e-12)
    A = np.array([model.A[group].sum(axis=0) for group in groups]).reshape(-1, *model.A.shape[1:])
    lin = None if model.lin is None else np.array([model.lin[group].sum(axis=0) for group in groups])
    read = A.any(axis=(1, 2)) if lin is None else A.any(axis=(1, 2)) | lin.any(axis=1)
    W = model.W[[group[0] for group in groups]]
    return replace(model, W=W[read], A=A[read], lin=None if lin is None else lin[read])


def _stacked(model: MultiHeadTransformer, order: Array | None = None) -> ReluNetwork:
    """The network on all heads' outputs one after the other, (H d) inputs."""
    A = model.A if order is None else model.A[order]
    lin = None if model.lin is None else (model.lin if order is None else model.lin[order]).ravel()
    return ReluNetwork(A.reshape(-1, A.shape[2]), model.w_o, model.b, model.b_o, lin)


def _matched(cost: list[list[float]], heads: int, others: int) -> float:
    """Worst cost of the best matching of heads; inf if their numbers differ."""
    from scipy.optimize import linear_sum_assignment  # a slow import, seldom needed

    if heads != others:
        return float("inf")
    if heads == 0:
        return 0.0
    table = np.minimum(np.array(cost), 1e300)
    rows, columns = linear_sum_assignment(table)
    return float(table[rows, columns].max())


@distance.register
def _(model: Transformer, other: Model) -> float:
    if not isinstance(other, Transformer):
        raise InvalidArgument(f"a Transformer cannot be compared with a {type(other).__name__}.")
    return max(relative(model.W, other.W), distance(model.network, other.network))


@distance.register
def _(model: TokenHead, other: Model) -> float:
    """Relative Frobenius error of the gaps, and of the values, over the tokens both models speak about."""
    if not isinstance(other, TokenHead) or other.vocabulary != model.vocabulary:
        raise InvalidArgument("a TokenHead can only be compared with a TokenHead over the same vocabulary.")
    ids = np.intersect1d(model.known, other.known)
    (K, Q), (K2, Q2) = _gap_factors(model, ids), _gap_factors(other, ids)
    # Thin QR factorisations: no V x V matrix is formed.
    gap = np.linalg.qr(np.hstack([K, -K2]))[1] @ np.linalg.qr(np.hstack([Q, Q2]))[1].T
    size = float(np.linalg.norm(np.linalg.qr(K2)[1] @ np.linalg.qr(Q2)[1].T))
    error = float(np.linalg.norm(gap))
    gaps = error / size if size > 1e-300 else error
    last, last2 = (m.values if m.own_values is None else m.own_values for m in (model, other))
    return max(gaps, relative(model.values[ids], other.values[ids]), relative(last[ids], last2[ids]))


def _gap_factors(model: TokenHead, ids: Array) -> tuple[Array, Array]:
    """Factors of S_ij - S_jj; keys are centred first, which changes no gap and keeps large offsets from cancelling."""
    K, Q = (part[ids].astype(np.float64) for part in model.scores)
    if model.own is not None:
        diagonal = model.own[ids]
    else:
        K = K - K.mean(axis=0)
        diagonal = np.einsum("vr,vr->v", K, Q)
    return np.hstack([K, np.ones((len(ids), 1))]), np.hstack([Q, -diagonal[:, None]])


@distance.register
def _(model: OutputLayer, other: Model) -> float:
    """Sine of the largest angle between the row spaces; 1 where the widths differ."""
    if not isinstance(other, OutputLayer) or (model.tokens is None and model.vocabulary != other.vocabulary):
        raise InvalidArgument(f"an OutputLayer cannot be compared with this {type(other).__name__}.")
    A, B = model.basis, other.basis
    if model.tokens is not None and other.tokens is None:
        B = B[:, model.tokens]
        B = np.linalg.qr((B - B.mean(axis=1, keepdims=True) if model.centred else B).T)[0].T
    elif model.centred and not other.centred:
        B = np.linalg.qr((B - B.mean(axis=1, keepdims=True)).T)[0].T
    if A.shape != B.shape:
        return 1.0
    return float(np.linalg.norm(A - (A @ B.T) @ B, 2))


@distance.register
def _(model: KernelHead, other: Model) -> float:
    """W up to one scale where the kernels differ in name; v times kappa(0) where weights are not normalised."""
    if not isinstance(other, KernelHead) or model.normalised != other.normalised:
        raise InvalidArgument(f"a KernelHead cannot be compared with this {type(other).__name__}.")
    if model.kernel.zero_at_zero and model.kernel.name == other.kernel.name:
        mine, true = model.canonical(), other.canonical()
        # Entries of one size may change which of them is the largest, and with it the sign of both.
        flips = (1.0,) if model.kernel.one_sided else (1.0, -1.0)
        odd = not model.normalised and model.kernel.name == "linear"
        return min(max(relative(s * mine.W, true.W), relative(s * mine.v if odd else mine.v, true.v)) for s in flips)
    W, v = model.W, model.v
    if model.kernel.name != other.kernel.name:
        W = W * float(np.sum(W * other.W) / max(float(np.sum(W * W)), 1e-300))
    if not model.normalised:
        zero = np.zeros(())
        v, w = v * float(model.kernel(zero)), other.v * float(other.kernel(zero))
        return max(relative(W, other.W), relative(v, w))
    return max(relative(W, other.W), relative(v, other.v))
