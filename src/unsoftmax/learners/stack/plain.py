"""Stacks without norms: paths where attention is hard, weights where it is soft, then Gauss-Newton on the stack.

Stacks without norms at tokens of ordinary length: W and c of every head, layer by layer, from one set of sequences.

y = x_N + sum_paths M_path sum_j w_j x_j is linear in the paths' weights w, and the weights of the path through a single
head are that head's attention: their log ratios (z_j - z_N)'(W z_N + c) are linear in W and c once z, behind the layers
below, is known.

Theory: docs/theory/stacks.md, "Without norms".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Steps, find_scale
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.learners.stack.hard import find_paths
from unsoftmax.learners.stack.order import find_causal
from unsoftmax.learners.stack.polish import parameter_error
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.solvers.gauss_newton import LARGEST
from unsoftmax.solvers.plain_stack import Plain, Sequences, all_paths
from unsoftmax.solvers.stack_newton import Fit, gauss_newton
from unsoftmax.solvers.star import ranks
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Weights:
    """How weights of paths are read: keys and matrices of all paths, and tokens per sequence beside the last."""

    keys: list[tuple[int, ...]]
    M: Array
    others: int
    constant: Array

    def read(self, X: Array, y: Array) -> Array:
        """Attention (B, heads, N) at the last token, from answers y (B, d) to tokens X (B, N, d)."""
        last = X[:, -1]
        rest = y - last - self.constant - last @ self.M.sum(axis=0).T
        columns = np.einsum("pde,bje->bdpj", self.M, X[:, :-1] - last[:, None], optimize=True)
        columns = columns.reshape(len(X), X.shape[2], -1)
        w = (np.linalg.pinv(columns) @ rest[:, :, None]).reshape(len(X), len(self.keys), -1)
        single = [i for i, key in sorted(enumerate(self.keys), key=lambda item: item[1]) if len(key) == 1]
        alpha = w[:, single]
        return np.concatenate([alpha, 1 - alpha.sum(axis=2, keepdims=True)], axis=2)


def read_weights(P: list[Array], one: tuple[Array, Array]) -> Weights:
    """One token x (d,) and its answer give the constant; `others` is what the outputs and the heads' ranges hold."""
    keys, M = all_paths(P)
    d = M.shape[1]
    others, below = int(STACK.weights_over_outputs * d / len(keys)), 1
    for layer in P:
        rank = ranks(layer)
        others = min(others, int((rank if rank == d else 0.85 * rank) / below))
        below *= 1 + len(layer)
    x, y = one
    return Weights(keys, M, max(others, 1), y - x - M.sum(axis=0) @ x)


def ask_soft(weights: Weights, rng: np.random.Generator) -> Asking[Sequences]:
    """Sequences at a length where all heads can be read; y is what is added to the last token.

    Log ratios of about 1 are aimed at: weights then are neither equal nor 0 and 1. They grow with the length's square.
    """
    d = weights.M.shape[1]

    def draw(m: int, length: float) -> Array:
        return np.asarray(length * rng.standard_normal((m, weights.others + 1, d)) / np.sqrt(d))

    def look(length: float) -> Asking[float]:
        X = draw(CORE.pilot_entries, length)
        alpha = weights.read(X, (yield Probes(X, phase="pilot")))
        readable = _readable(alpha)
        return float(np.sqrt(_typical(alpha, readable))) if readable.mean() >= 0.7 else SATURATED

    found = yield from find_scale(look, 1.0, Steps(least=1 / 8, shorter=1 / 3, looks=5))
    number = int(np.ceil(STACK.log_ratios * d * (d + 1) / weights.others)) + STACK.sequences_to_spare
    X = draw(number, found.scale if found.size == SATURATED else found.wished)
    y = yield Probes(X)
    return Sequences(X, y - X[:, -1])


def _typical(alpha: Array, readable: Array) -> float:
    """Median size of log ratios of the strongest head."""
    sizes = []
    for a, ok in zip(alpha.transpose(1, 0, 2), readable.T, strict=True):
        if ok.any():
            sizes.append(float(np.median(np.abs(np.log(a[ok, :-1] / a[ok, -1:])))))
    return max(sizes)


def solve_soft(P: list[Array], weights: Weights, data: Sequences, causal: bool) -> Plain:
    """All heads, lowest layer first."""
    n, d = sum(map(len, P)), data.y.shape[1]
    W, c = np.zeros((n, d, d)), np.zeros((n, d))
    model = Plain(W, c, np.concatenate(P), weights.constant, tuple(map(len, P)), causal)
    alpha = weights.read(data.tokens, data.y + data.tokens[:, -1])
    Z = data.tokens
    for rows in model.layers():
        for h in range(rows.start, rows.stop):
            W[h], c[h] = _head(Z, alpha[:, h])
        Z = model.step(Z, rows)
    return model


def _readable(alpha: Array) -> Array:
    """Where no weight (..., N) is too near to 0 or 1."""
    return np.asarray((np.abs(2 * alpha - 1) < 1 - 2 * STACK.weight_off_ends).all(axis=-1))


def _head(Z: Array, alpha: Array) -> tuple[Array, Array]:
    """W (d, d) and c (d,) from tokens Z (B, N, d) and weights (B, N) of the last one, by their log ratios."""
    d = Z.shape[2]
    ok = _readable(alpha)
    if ok.sum() * (Z.shape[1] - 1) < d * (d + 1):
        ok = np.ones(len(ok), bool)
    a, Z = np.clip(alpha[ok], STACK.weight_off_ends, 1 - STACK.weight_off_ends), Z[ok]
    t = np.log(a[:, :-1] / a[:, -1:])
    own = np.column_stack([Z[:, -1], np.ones(len(Z))])
    F = np.einsum("bjd,be->bjde", Z[:, :-1] - Z[:, -1:], own).reshape(-1, d * (d + 1))
    trust = (1 / (1 / a[:, :-1] + 1 / a[:, -1:])).ravel()
    joined = np.linalg.lstsq(F * trust[:, None], t.ravel() * trust, rcond=None)[0].reshape(d, d + 1)
    return joined[:, :-1], joined[:, -1]


def learn_plain(
    frame: Frame, spec: OracleSpec, rng: np.random.Generator, seed: int, polish: bool
) -> Asking[tuple[Plain, float]]:
    """The stack behind one-token answers that are affine, and its stated error; raises where there is none."""
    if frame.dtype != "float64":
        raise NotIdentifiable(
            "a stack without norms is told by how hard answers move, which float32 leaves three digits of; its layers "
            "need float64 answers."
        )
    P = yield from find_paths(spec, frame.one, rng)
    causal = (yield from find_causal(frame, rng)) if len(P) > 1 else False
    weights = read_weights(P, frame.one)
    data = yield from ask_soft(weights, rng)
    start = solve_soft(P, weights, data, causal)
    size = float(np.sqrt(np.mean(data.y**2)))
    misfit = float(np.sqrt(np.mean((start.answers(data) - data.y) ** 2))) / max(size, 1e-300)
    if not misfit <= STACK.plain_start:
        raise ModelMismatch(
            f"{len(weights.M)} paths were found where attention is hard, and a stack of their heads misses soft "
            f"answers by {misfit:.2g} of what is written: scores are not bilinear, or something else stands between "
            "the layers."
        )
    fit = _polished(start, data, seed) if polish and start.flat.size <= LARGEST else None
    if fit is not None and fit.residual > frame.exact:
        raise ModelMismatch(
            f"heads in {len(P)} layers without norms miss soft answers by {fit.residual:.2g} of what is written: "
            "something else than attention stands between the layers."
        )
    model = start if fit is None else fit.model
    error = CORE.stated_over_rounding * (parameter_error(fit) if fit is not None else misfit * spec.dim)
    return model, error


def _polished(start: Plain, data: Sequences, seed: int) -> Fit[Plain]:
    noise = EPS * float(np.abs(data.tokens).max() + np.abs(data.y).max())
    return gauss_newton(start, [data], noise=noise, draws=CORE.entries_for_scale, seed=seed)
