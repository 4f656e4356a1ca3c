"""Gauss-Newton for stacks of heads: answers to one moving token among tokens that no layer can turn.

Two models share their heads. Wide: the last token is long too, all heads of all layers see the same tokens and add up.
Deep: the last token has an ordinary length and every layer sees what the layers below made of it. Jacobians are written
out by hand; normal equations are summed over parts of the data, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from unsoftmax.probes.base import Array

_PART = 2**24
"""Numbers of a Jacobian that are held at once: 128 MB."""

_ARRIVED = 0.3
"""Relative gain below which a converging Gauss-Newton is at rounding: before, every step gains digits."""

_NEAR = 1e-6
"""Relative misfit below which steps converge quadratically: a small gain is then the end and not a detour."""

_FIRST_ORDER = 1e-6
"""Relative length of a step within which products of factors are linear to six digits."""

_STALLED = 1e-3
"""Relative gain below which a fit far from rounding is stuck."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """Sequences of frozen tokens around a moving one: q (B, D) the last token's direction, of length sqrt d, `scale`
    (B,) its length in that unit (unused by the wide model), others (B, N, D), log_counts (B, N), answers y (B, d).

    y is what the stack added to the last token; for the wide model less what it adds to that token alone.
    """

    q: Array
    others: Array
    log_counts: Array
    y: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: Array | slice) -> Contexts:
        """The sequences at `index`."""
        parts = (self.q, self.others, self.log_counts, self.y, self.scale)
        return Contexts(*(part[index] for part in parts))


@dataclass(frozen=True, eq=False)
class Heads:
    """n heads in factors: W_h = A_h B_h, c_h = A_h b_h, P_h = O_h V_h.

    A (n, D, r), B (n, r, D), b (n, r), O (n, d, s), V (n, s, D).
    """

    A: Array
    B: Array
    b: Array
    O: Array
    V: Array

    def __len__(self) -> int:
        return len(self.A)

    @property
    def W(self) -> Array:
        """(n, D, D)."""
        return np.asarray(self.A @ self.B)

    @property
    def c(self) -> Array:
        """(n, D)."""
        return np.einsum("hdr,hr->hd", self.A, self.b)

    @property
    def P(self) -> Array:
        """(n, d, D)."""
        return np.asarray(self.O @ self.V)

    @property
    def flat(self) -> Array:
        """All numbers, head by head."""
        parts = [part.reshape(len(self), -1) for part in (self.A, self.B, self.b, self.O, self.V)]
        return np.hstack(parts).ravel()

    def like(self, flat: Array) -> Heads:
        """Heads of the same shapes from `flat`."""
        rows = flat.reshape(len(self), -1)
        out, start = [], 0
        for part in (self.A, self.B, self.b, self.O, self.V):
            size = part[0].size
            out.append(rows[:, start : start + size].reshape(part.shape))
            start += size
        return Heads(*out)

    def take(self, index: list[int]) -> Heads:
        """The heads at `index`."""
        return Heads(*(part[index] for part in (self.A, self.B, self.b, self.O, self.V)))


def factored(W: Array, c: Array, P: Array, r: int, s: int) -> Heads:
    """W (n, D, D) with c (n, D) cut to rank r, P (n, d, D) to rank s."""
    U, sizes, Vt = np.linalg.svd(np.concatenate([W, c[:, :, None]], axis=2), full_matrices=False)
    root = np.sqrt(sizes[:, :r])
    Bb = root[:, :, None] * Vt[:, :r]
    U2, sizes2, Vt2 = np.linalg.svd(P, full_matrices=False)
    root2 = np.sqrt(sizes2[:, :s])
    return Heads(
        U[:, :, :r] * root[:, None],
        Bb[:, :, :-1],
        Bb[:, :, -1],
        U2[:, :, :s] * root2[:, None],
        root2[:, :, None] * Vt2[:, :s],
    )


@dataclass(frozen=True, eq=False)
class Wide:
    """All heads at once."""

    heads: Heads

    @property
    def flat(self) -> Array:
        return self.heads.flat

    def like(self, flat: Array) -> Wide:
        return Wide(self.heads.like(flat))

    def answers(self, data: Contexts) -> Array:
        """(B, d)."""
        return at_work(self.heads, data.q, data, minus_own=True).out

    def jacobian(self, data: Contexts) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters)."""
        seen = at_work(self.heads, data.q, data, minus_own=True)
        return seen.out, seen.by_parameters()


@dataclass(frozen=True, eq=False)
class Deep:
    """Layers of heads: x <- x + Attn(norm x) + constant. T (d, D) maps coordinates of normalised tokens to tokens.

    heads and constants (L, d) lowest layer first, `sizes` heads per layer; norm is x / sqrt(|x|^2 / d + eps).
    """

    heads: Heads
    sizes: tuple[int, ...]
    constants: Array
    eps: float
    T: Array

    @property
    def flat(self) -> Array:
        return np.concatenate([self.heads.flat, self.constants.ravel(), [self.eps]])

    def like(self, flat: Array) -> Deep:
        n = self.heads.flat.size
        # A step past zero is no eps: half the way is.
        eps = float(flat[-1]) if flat[-1] > 0 else self.eps / 2
        return replace(
            self, heads=self.heads.like(flat[:n]), constants=flat[n:-1].reshape(self.constants.shape), eps=eps
        )

    def answers(self, data: Contexts) -> Array:
        """(B, d)."""
        return self._run(data)[0]

    def _run(self, data: Contexts) -> tuple[Array, list[AtWork], list[Array], list[Array]]:
        d = len(self.T)
        v = np.zeros((len(data), d))
        layers, turns, fades = [], [], []
        for part, constant in zip(self._parts(), self.constants, strict=True):
            x = data.scale[:, None] * data.q + v @ self.T
            g = (x * x).sum(axis=1) / d + self.eps
            seen = at_work(part, x / np.sqrt(g)[:, None], data)
            turn = (
                np.eye(x.shape[1]) / np.sqrt(g)[:, None, None]
                - x[:, :, None] * x[:, None] / (d * g**1.5)[:, None, None]
            )
            layers.append(seen)
            turns.append(turn)
            fades.append(-x / (2 * g**1.5)[:, None])
            v = v + seen.out + constant
        return v, layers, turns, fades

    def _parts(self) -> Iterator[Heads]:
        start = 0
        for size in self.sizes:
            yield self.heads.take(list(range(start, start + size)))
            start += size

    def jacobian(self, data: Contexts) -> tuple[Array, Array]:
        """Answers (B, d) and their derivative (B, d, parameters), from the highest layer down."""
        v, layers, turns, fades = self._run(data)
        above = np.broadcast_to(np.eye(len(self.T)), (len(data), *np.eye(len(self.T)).shape))
        by_heads, by_constants = [], []
        by_eps = np.zeros(v.shape)
        for seen, turn, fade in zip(layers[::-1], turns[::-1], fades[::-1], strict=True):
            by_heads.append(above @ seen.by_parameters())
            by_constants.append(above)
            by_own = above @ seen.by_own()
            by_eps += (by_own @ fade[:, :, None])[:, :, 0]
            above = above + by_own @ turn @ self.T.T
        J = np.concatenate([*by_heads[::-1], *by_constants[::-1], by_eps[:, :, None]], axis=2)
        return v, J


@dataclass(frozen=True, eq=False)
class AtWork:
    """One layer's heads at work: tokens X (B, N + 1, D), the last of them `own` (B, D); z (B, n, r), u (B, n, D), alpha
    (B, n, N + 1), mixed (B, n, D), values (B, n, D) what V reads, out (B, d).
    """

    heads: Heads
    own: Array
    X: Array
    z: Array
    u: Array
    alpha: Array
    mixed: Array
    values: Array
    out: Array

    def _by_u(self) -> Array:
        """Derivative of the answer by every head's u, (B, n, d, D)."""
        spread = np.einsum("bhi,bid,bie->bhde", self.alpha, self.X, self.X, optimize=True)
        spread -= self.mixed[..., None] * self.mixed[:, :, None]
        return np.asarray(self.heads.P @ spread)

    def by_parameters(self) -> Array:
        """(B, d, parameters), head by head in the order of Heads.flat."""
        heads, (B, d) = self.heads, self.out.shape
        by_u = self._by_u()
        by_z = by_u @ heads.A
        n, s = len(heads), heads.V.shape[1]
        written = np.einsum("hse,bhe->bhs", heads.V, self.values)
        by_O = np.einsum("ef,bhs->bhefs", np.eye(d), written)
        by_V = np.einsum("hes,bhd->bhesd", heads.O, self.values)
        blocks = [
            np.einsum("bhed,bhr->bhedr", by_u, self.z).reshape(B, n, d, -1),
            np.einsum("bher,bd->bherd", by_z, self.own).reshape(B, n, d, -1),
            by_z,
            by_O.reshape(B, n, d, d * s),
            by_V.reshape(B, n, d, -1),
        ]
        return np.concatenate(blocks, axis=3).transpose(0, 2, 1, 3).reshape(B, d, -1)

    def by_own(self) -> Array:
        """Derivative by the last token itself, (B, d, D), all heads together."""
        return np.asarray(self.by_own_of_each().sum(axis=1))

    def by_own_of_each(self) -> Array:
        """Derivative of every head's answer by the last token, (B, n, d, D): its query, its key and its value."""
        last = self.alpha[:, :, -1]
        as_key = (self.own[:, None] - self.mixed)[..., None] * self.u[:, :, None]
        inside = last[..., None, None] * (as_key + np.eye(self.own.shape[1]))
        return np.asarray(self._by_u() @ self.heads.W + self.heads.P @ inside)


def at_work(heads: Heads, own: Array, data: Contexts, *, minus_own: bool = False) -> AtWork:
    """Heads whose last token is seen as `own` (B, D); `minus_own` takes off what they answer to it alone."""
    X = np.concatenate([data.others, own[:, None]], axis=1)
    z = np.einsum("hrd,bd->bhr", heads.B, own) + heads.b
    u = np.einsum("hdr,bhr->bhd", heads.A, z)
    scores = np.einsum("bid,bhd->bhi", X, u)
    scores[:, :, :-1] += data.log_counts[:, None]
    scores -= scores.max(axis=2, keepdims=True)
    alpha = np.exp(scores)
    alpha /= alpha.sum(axis=2, keepdims=True)
    mixed = alpha @ X
    values = mixed - own[:, None] if minus_own else mixed
    out = np.einsum("hes,bhs->be", heads.O, np.einsum("hsd,bhd->bhs", heads.V, values))
    return AtWork(heads, own, X, z, u, alpha, mixed, values, out)


@dataclass(frozen=True, eq=False)
class Fit:
    """The model where Gauss-Newton ended, its misfit relative to the answers, and how answers' noise moves it."""

    model: Wide | Deep
    residual: float
    moved: tuple[Wide | Deep, ...] = ()
    magnified: float = 1.0
    """How much further than in `moved` the noise would move the model: long steps are shortened to stay in the first
    order."""


def gauss_newton(
    model: Wide | Deep,
    data: list[Contexts],
    *,
    steps: int = 12,
    last: int = 0,
    noise: float = 0.0,
    draws: int = 0,
    seed: int = 0,
) -> Fit:
    """Least squares over all `data` from a start that is near; of the `last` parameters only, if given.

    `draws` models are added to the result, each moved as random answers' errors of the fit's own size (at least
    `noise`, absolute) would move it in the first order: they tell how well every parameter is known.
    """
    size = max(float(np.sqrt(sum((part.y**2).sum() for part in data))), 1e-300)
    damping = 1e-10
    cost = _cost(model, data)
    for _ in range(steps):
        held = model.flat.size - last if last else 0
        G, b = _normal(model, data, held=held)
        scale = np.sqrt(np.diag(G)) + 1e-300
        G = G / scale[:, None] / scale
        flat, new = model.flat, np.inf
        for _ in range(6):
            step = np.concatenate([np.zeros(held), _solve(G, b / scale, damping) / scale])
            trial = model.like(flat + step)
            new = _cost(trial, data)
            if new < cost:
                break
            damping *= 100
        else:
            break
        damping = max(damping / 100, 1e-13)
        gain = 1 - new / cost
        model, cost = trial, new
        if gain < (_ARRIVED if cost < _NEAR * size else _STALLED):
            break
    noise = max(noise, cost / np.sqrt(sum(part.y.size for part in data)))
    return Fit(model, cost / size, *_moved(model, data, noise, draws, seed))


def _moved(
    model: Wide | Deep, data: list[Contexts], noise: float, draws: int, seed: int
) -> tuple[tuple[Wide | Deep, ...], float]:
    if not draws:
        return (), 1.0
    rng = np.random.default_rng([seed, 0x51A])
    G, B = _normal(model, data, [noise * rng.standard_normal((*part.y.shape, draws)) for part in data])
    scale = np.sqrt(np.diag(G)) + 1e-300
    steps = _solve(G / scale[:, None] / scale, B / scale[:, None], 1e-12) / scale[:, None]
    longest = float(np.linalg.norm(steps, axis=0).max() / max(float(np.linalg.norm(model.flat)), 1e-300))
    magnified = max(1.0, longest / _FIRST_ORDER)
    return tuple(model.like(model.flat + step / magnified) for step in steps.T), magnified


def _parts(model: Wide | Deep, data: list[Contexts]) -> Iterator[tuple[int, slice]]:
    for i, group in enumerate(data):
        rows = max(1, _PART // (model.flat.size * group.y.shape[1]))
        for start in range(0, len(group), rows):
            yield i, slice(start, start + rows)


def _cost(model: Wide | Deep, data: list[Contexts]) -> float:
    with np.errstate(all="ignore"):
        rest = [np.linalg.norm(group.y - model.answers(group)) for group in data]
    total = float(np.sqrt(np.sum(np.square(rest))))
    return total if np.isfinite(total) else np.inf


def _normal(
    model: Wide | Deep, data: list[Contexts], right: list[Array] | None = None, held: int = 0
) -> tuple[Array, Array]:
    """J'J and J'(y - answers), or J' times the columns of `right` (B, d, k); of the parameters from `held` on."""
    size = model.flat.size - held
    G = np.zeros((size, size))
    b = np.zeros(size if right is None else (size, right[0].shape[2]))
    for i, rows in _parts(model, data):
        part = data[i].take(rows)
        out, J = model.jacobian(part)
        J = np.ascontiguousarray(J[:, :, held:]).reshape(-1, size)
        rest = part.y - out if right is None else right[i][rows]
        G += dsyrk(1.0, J, trans=1, lower=1)
        b += J.T @ rest.reshape(len(J), *rest.shape[2:])
    return np.tril(G) + np.tril(G, -1).T, b


def _solve(G: Array, b: Array, damping: float) -> Array:
    A = G.copy()
    A[np.diag_indices_from(A)] += damping
    try:
        return np.asarray(cho_solve(cho_factor(A, overwrite_a=True, check_finite=False), b))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(G, b, rcond=damping)[0])
