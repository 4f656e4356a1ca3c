"""Stacks without norms: paths where attention is hard, weights where it is soft, then Gauss-Newton on the stack.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import RELATIVE_ERROR, SLACK, Allowance, Asking, Outcome
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.learners.stack.hard import find_paths
from unsoftmax.learners.stack.order import find_causal
from unsoftmax.learners.stack.polish import DRAWS, parameter_error
from unsoftmax.learners.stack.soft import ask_soft, read_weights, solve_soft
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.attention_stack import AttentionStack
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.solvers.gauss_newton import LARGEST
from unsoftmax.solvers.plain_stack import Plain, Sequences
from unsoftmax.solvers.stack_heads import factored
from unsoftmax.solvers.stack_newton import Fit, gauss_newton
from unsoftmax.spec import OracleSpec

_EXACT = 1e-12
"""Misfit, relative to what is written, of a stack that explains soft answers."""

_START = 1e-2
"""Misfit of the same before Gauss-Newton: weights are read to eight digits, and a wrong stack misses by order one."""


def learn_plain(
    frame: Frame, spec: OracleSpec, rng: np.random.Generator, seed: int, polish: bool
) -> Asking[tuple[Plain, float]]:
    """The stack behind one-token answers that are affine, and its stated error; raises where there is none."""
    if frame.dtype != "float64":
        raise NotIdentifiable(
            "a stack without norms is told by how hard answers move, which float32 leaves three digits of; its layers "
            "need float64 answers."
        )
    paths = yield from find_paths(spec, frame.one, rng)
    causal = (yield from find_causal(frame, rng)) if len(paths.P) > 1 else False
    weights = read_weights(paths, frame.one)
    data = yield from ask_soft(weights, rng)
    start = solve_soft(paths, weights, data, causal)
    size = float(np.sqrt(np.mean(data.y**2)))
    misfit = float(np.sqrt(np.mean((start.answers(data) - data.y) ** 2))) / max(size, 1e-300)
    if not misfit <= _START:
        raise ModelMismatch(
            f"{paths.count} paths were found where attention is hard, and a stack of their heads misses soft answers "
            f"by {misfit:.2g} of what is written: scores are not bilinear, or something else stands between the layers."
        )
    fit = _polished(start, data, seed) if polish and start.flat.size <= LARGEST else None
    if fit is not None and fit.residual > _EXACT:
        raise ModelMismatch(
            f"heads in {len(paths.P)} layers without norms miss soft answers by {fit.residual:.2g} of what is written: "
            "something else than attention stands between the layers."
        )
    model = start if fit is None else fit.model
    error = SLACK * (parameter_error(fit) if fit is not None else misfit * spec.dim)
    return model, error


def _polished(start: Plain, data: Sequences, seed: int) -> Fit[Plain]:
    noise = EPS * float(np.abs(data.tokens).max() + np.abs(data.y).max())
    return gauss_newton(start, [data], noise=noise, draws=DRAWS, seed=seed)


def plain_outcome(found: Plain, error: float) -> Outcome:
    """The model, its note and its claim."""
    d = found.W.shape[1]
    layers = []
    for number, rows in enumerate(found.layers()):
        constant = found.constant if number == len(found.sizes) - 1 else np.zeros(d)
        layers.append(_layer(found.W[rows], found.c[rows], found.P[rows], constant, max(NO_DIRECTION, 10 * error)))
    model = AttentionStack(tuple(layers), None, 0.0, found.causal)
    counts = ", ".join(map(str, model.heads))
    seen = "causal" if model.causal else "every token sees all"
    note = f"{model.depth} layers of {counts} heads (lowest first), no norm, {seen}, all constants on top."
    statement = "worst head's W, c or P: what errors of the answers like those seen do to it, in the first order"
    return Outcome(model, (note,), allows=Allowance(Claim(RELATIVE_ERROR, error, statement=statement)))


def _layer(W: Array, c: Array, P: Array, constant: Array, cut: float) -> AttentionLayer:
    """Heads in factors of the largest rank that one of them has."""
    r, s = (_rank(part, cut) for part in (np.concatenate([W, c[:, :, None]], axis=2), P))
    heads = factored(W, c, P, min(r, W.shape[1]), s)
    return AttentionLayer(heads.A.transpose(0, 2, 1), heads.B, heads.c, heads.O, heads.V, constant)


def _rank(matrices: Array, cut: float) -> int:
    sizes = np.linalg.svd(matrices, compute_uv=False)
    return int((sizes > cut * sizes[:, :1]).sum(axis=1).max())
