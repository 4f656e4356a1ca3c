"""Heads on recorded sequences as a least-squares problem: y = sum_h P_h z_h, z_h = sum_i softmax_i(x_i' W_h q) x_i.

Everything about W passes through g_h = dy/du_h, u_h = W_h q: J dW = g . (dW q), J' rows = sum of rows g q'. So the
products cost n d^2 and no Jacobian is formed unless a normal matrix is asked for. Scalar answers: P_h is the row v_h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.fitting.blocks import Blocks, attend
from unsoftmax.fitting.constants import FITTING
from unsoftmax.fitting.shape import Shape
from unsoftmax.probes.base import Array
from unsoftmax.solvers.gauss_newton import Dense


@dataclass(frozen=True, eq=False)
class Heads:
    """The problem: records and the shape of what is fitted."""

    blocks: Blocks
    shape: Shape

    def at(self, x: Array) -> HeadsAt:
        """Answers, mean tokens z and slopes g at these unknowns."""
        W, factors, P = self.shape.split(x)
        n, H, d, m = len(self.blocks), self.shape.heads, self.shape.dim, self.shape.outputs
        y, Z, G = np.zeros((n, m)), np.empty((H, n, d)), np.empty((H, n, m, d))
        for h in range(H):
            u = self.blocks.q @ W[h].T
            for block in self.blocks:
                rows, X = block.rows, block.tokens
                alpha = attend(block, u[rows])[1]
                values = X @ P[h].T
                shown = np.matmul(alpha[:, None, :], values)
                y[rows] += shown[:, 0]
                Z[h, rows] = np.matmul(alpha[:, None, :], X)[:, 0]
                G[h, rows] = np.matmul((alpha[:, :, None] * (values - shown)).transpose(0, 2, 1), X)
        return HeadsAt(self.shape, (y - self.blocks.y).ravel(), self.blocks.q, Z, G, factors)


@dataclass(frozen=True, eq=False)
class HeadsAt:
    """Linearised: residual (n m,), q (n, d), z (H, n, d), g (H, n, m, d); weights multiply rows, None for ones."""

    shape: Shape
    residual: Array
    q: Array
    Z: Array
    G: Array
    factors: tuple[Array, Array] | None
    weights: Array | None = None

    def weighted(self, weights: Array) -> HeadsAt:
        return replace(self, residual=self.residual * weights, weights=weights)

    @property
    def slopes(self) -> Array:
        """|dy/dW| (n m,): how much the answer owes to the scores."""
        size = np.sqrt((self.G**2).sum(axis=(0, 3))) * np.linalg.norm(self.q, axis=1)[:, None]
        return np.asarray(size.ravel())

    def gradient(self) -> Array:
        return self._adjoint(self.residual, self.q, self.Z, self.G)

    @cached_property
    def _products(self) -> tuple[Array, Array, Array]:
        # A step is only as good as its linear model: products in float32 take half the time, and the next residual
        # and gradient, in float64, see what they left.
        return self.q.astype(np.float32), self.Z.astype(np.float32), self.G.astype(np.float32)

    @cached_property
    def _inner(self) -> list[tuple[Array, Array]]:
        """Of factored heads: B'q (n, r) and A'g (n, m, r), through which all products pass, at r / d of the cost."""
        q, _, G = self._products
        A, B = self.factors or ((), ())
        pairs = zip(A, B, G, strict=True)
        return [(q @ b.astype(q.dtype), g @ a.astype(q.dtype)) for a, b, g in pairs]

    def forward(self, step: Array) -> Array:
        q, Z, G = self._products
        W, factors, P = self.shape.split(step.astype(q.dtype))
        y = np.zeros(G.shape[1:3], dtype=q.dtype)
        for h in range(self.shape.heads):
            y += Z[h] @ P[h].T
            if factors is None:
                y += _along(G[h], q @ W[h].T)
            else:
                qb, ga = self._inner[h]
                y += _along(G[h] @ factors[0][h], qb) + _along(ga, q @ factors[1][h])
        rows = y.ravel().astype(np.float64)
        return rows if self.weights is None else rows * self.weights

    def adjoint(self, rows: Array) -> Array:
        q, Z, G = self._products
        rows = rows.astype(q.dtype)
        if self.factors is None:
            return self._adjoint(rows, q, Z, G).astype(np.float64)
        rows = (rows if self.weights is None else rows * self.weights.astype(rows.dtype)).reshape(G.shape[1:3])
        A = [_pulled(rows, g).T @ qb for g, (qb, _) in zip(G, self._inner, strict=True)]
        B = [q.T @ _pulled(rows, ga) for _, ga in self._inner]
        return np.concatenate([part.ravel() for part in (*A, *B, *(rows.T @ z for z in Z))]).astype(np.float64)

    def response(self, step: Array) -> Array:
        """J step (rows,) in full precision, without weights: how records differ in it may be seen to rounding."""
        return self.shown(*self.changes(step))

    def shown(self, W: Array, P: Array) -> Array:
        """J (rows,) of changes W (H, d, d) and P (H, m, d)."""
        parts = zip(self.G, self.Z, W, P, strict=True)
        return np.asarray(sum(_along(g, self.q @ w.T) + z @ p.T for g, z, w, p in parts)).ravel()

    def changes(self, step: Array) -> tuple[Array, Array]:
        """dW (H, d, d) and dP (H, m, d) of a step."""
        changed, factors, P = self.shape.split(step)
        if factors is None or self.factors is None:
            return changed, P
        (A, B), (dA, dB) = self.factors, factors
        return dA @ B.transpose(0, 2, 1) + A @ dB.transpose(0, 2, 1), P

    def _adjoint(self, rows: Array, q: Array, Z: Array, G: Array) -> Array:
        rows = (rows if self.weights is None else rows * self.weights.astype(rows.dtype)).reshape(G.shape[1:3])
        pull = np.stack([_pulled(rows, g).T @ q for g in G])
        P = np.stack([rows.T @ z for z in Z])
        if self.factors is None:
            return np.concatenate([pull.ravel(), P.ravel()])
        A, B = self.factors
        return np.concatenate([(pull @ B).ravel(), (pull.transpose(0, 2, 1) @ A).ravel(), P.ravel()])

    def jacobian(self, rows: slice = slice(None)) -> Array:
        """J (b m, unknowns) of some records."""
        scores = self.score_columns(rows)
        H, d, m = self.shape.heads, self.shape.dim, self.shape.outputs
        b = len(self.q[rows])
        linear = np.zeros((b, m, H, m, d))
        for k in range(m):
            linear[:, k, :, k] = self.Z[:, rows].transpose(1, 0, 2)
        J = np.concatenate([scores, linear.reshape(b * m, -1)], axis=1)
        return J if self.weights is None else J * self.weights.reshape(-1, m)[rows].reshape(-1, 1)

    def score_columns(self, rows: slice = slice(None)) -> Array:
        """The columns of J that belong to W or its factors, without weights."""
        q, G = self.q[rows], self.G[:, rows]
        b, m = G.shape[1:3]
        if self.factors is None:
            parts = [g[:, :, :, None] * q[:, None, None, :] for g in G]
        else:
            A, B = self.factors
            parts = [g[:, :, :, None] * (q @ B[h])[:, None, None, :] for h, g in enumerate(G)]
            parts += [q[:, None, :, None] * (g @ A[h])[:, :, None, :] for h, g in enumerate(G)]
        return np.concatenate([part.reshape(b * m, -1) for part in parts], axis=1)

    def normal(self) -> Array:
        size = self.shape.unknowns
        A = np.zeros((size, size))
        step = max(1, FITTING.held_numbers // (size * self.shape.outputs))
        for start in range(0, len(self.q), step):
            J = self.jacobian(slice(start, start + step))
            A += J.T @ J
        return A

    def preconditioner(self) -> tuple[Array, Callable[[Array, float], Array]]:
        """J'J is close to (sum g g') x (sum q q') / n: tokens enter g and q almost independently.

        Its inverse, block by block (W or factors, P of each head), in the eigenbases of both sides.
        """
        parts = self._parts()

        def solve(b: Array, damping: float) -> Array:
            found, start = [], 0
            for left, right in parts:
                (e, U), (f, V) = left, right
                size = len(e) * len(f)
                block = U.T @ b[start : start + size].reshape(len(e), len(f)) @ V
                # Where no token is, rounding must not move W: thousands of records would be fitted by it.
                there = np.outer(e, f) > 0
                block = np.where(there, block / (np.outer(e, f) + damping * e.mean() * f.mean() + ~there), 0.0)
                found.append((U @ block @ V.T).ravel())
                start += size
            return np.concatenate(found)

        diagonal = [np.full(len(e) * len(f), e.mean() * f.mean()) for (e, _), (f, _) in parts]
        return np.concatenate(diagonal), solve

    def _parts(self) -> list[tuple[tuple[Array, Array], tuple[Array, Array]]]:
        """Eigenvalues and eigenvectors of the left and right side of every block, in the order of the unknowns."""
        w = 1.0 if self.weights is None else self.weights.reshape(-1, self.shape.outputs, 1)
        n, m = len(self.q), self.shape.outputs
        qq = _eigen(self.q.T @ self.q / n)
        gg = [_moments((g * w).reshape(n * m, -1)) for g in self.G]
        if self.factors is None:
            scores = [(_eigen(g), qq) for g in gg]
        else:
            A, B = self.factors
            QB = [self.q @ b for b in B]
            scores = [(_eigen(g), _eigen(_moments(qb) / n)) for g, qb in zip(gg, QB, strict=True)]
            scores += [(qq, _eigen(a.T @ g @ a)) for g, a in zip(gg, A, strict=True)]
        each = _eigen(np.eye(m))
        weight = 1.0 if self.weights is None else self.weights.reshape(n, m).mean(axis=1)[:, None]
        return scores + [(each, _eigen(_moments(z * weight))) for z in self.Z]


def _along(g: Array, u: Array) -> Array:
    """g (n, m, d) times u (n, d) record by record: (n, m). One output is not worth n products of matrices."""
    return np.matmul(g, u[:, :, None])[:, :, 0] if g.shape[1] > 1 else (g[:, 0] * u).sum(axis=1, keepdims=True)


def _pulled(rows: Array, g: Array) -> Array:
    """rows (n, m) times g (n, m, d) record by record: (n, d)."""
    return np.matmul(rows[:, None, :], g)[:, 0] if g.shape[1] > 1 else rows * g[:, 0]


def _moments(rows: Array) -> Array:
    return np.asarray(rows.T @ rows)


def _eigen(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, 0 where they are rounding, and eigenvectors."""
    values, vectors = np.linalg.eigh(A)
    return np.where(values > FITTING.squared_floor * max(float(values[-1]), 1e-300), values, 0.0), vectors


@dataclass(frozen=True, eq=False)
class Eliminated:
    """The same problem with P eliminated (variable projection, Kaufman 1975): the scores alone are unknown."""

    heads: Heads

    def at(self, x: Array) -> Dense:
        """Residual of the best P, and the columns of the scores with what P can explain taken out."""
        shape, blocks = self.heads.shape, self.heads.blocks
        P, Q = self.best(x)
        at = self.heads.at(np.concatenate([x, P.ravel()]))
        J = at.score_columns().reshape(len(blocks), shape.outputs, -1)
        J = J - np.tensordot(Q, np.tensordot(Q, J, (0, 0)), (1, 0))
        return Dense(at.residual, J.reshape(len(at.residual), -1))

    def best(self, x: Array) -> tuple[Array, Array]:
        """P (H, m, d) by least squares for the scores x, and an orthonormal basis (n, k) of what P explains."""
        shape, blocks = self.heads.shape, self.heads.blocks
        W = shape.split(np.concatenate([x, np.zeros(shape.unknowns - shape.scores)]))[0]
        Z = mean_tokens(blocks, W)
        U, s, Vt = np.linalg.svd(Z, full_matrices=False)
        kept = s > FITTING.squared_floor * s[0]
        Q = U[:, kept]
        C = Vt[kept].T @ ((Q.T @ blocks.y) / s[kept, None])
        return C.T.reshape(shape.outputs, shape.heads, shape.dim).transpose(1, 0, 2), Q


def mean_tokens(blocks: Blocks, W: Array) -> Array:
    """What the heads W (H, d, d) attend to: z of all heads side by side (n, H d)."""
    Z = np.empty((len(blocks), len(W), W.shape[1]))
    for h, Wh in enumerate(W):
        u = blocks.q @ Wh.T
        for block in blocks:
            Z[block.rows, h] = np.matmul(attend(block, u[block.rows])[1][:, None, :], block.tokens)[:, 0]
    return Z.reshape(len(blocks), -1)
