"""What one token shows: the RMSNorm's eps, the constant, the residual, M = sum_h P_h and the tokens that write nothing.

RMSNorm turns x into z = x / sqrt(mean x^2 + eps): short tokens fill the ball |z|^2 < d, and x = 0 is z = 0. With a
norm or without one the heads are asked as a layer on tokens z. Tokens in the null space of M write nothing, whoever
attends.

A scene behind a LayerNorm: tokens off their mean, in d - 1 dimensions, are those of an RMSNorm.

(x - mean) / sqrt(var(x) + eps) is x / sqrt(mean x^2 + eps) wherever the mean is 0, so that heads which share values are
told apart by tokens that write nothing here as well.

Theory: docs/theory/attention-layer.md, "Layers of language models", scene.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import Code, DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.limits import EXACT, ROUNDED, Limits
from unsoftmax.models.attention_layer import Norm
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.scales import held, on_grid, power_of_two
from unsoftmax.solvers.singular import svd
from unsoftmax.solvers.subspace import solve_orthogonal
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class Scene:
    """One token seen as z answers M z + constant [+ x]; M (outputs, d). eps None: no norm, z = x.

    written (r, d), empty (d - r, d): orthonormal bases of the row space of M, and of the tokens that write nothing.
    """

    dim: int
    eps: float | None
    M: Array
    constant: Array
    residual: bool
    noise: float
    dtype: str
    written: Array
    empty: Array
    sinks: bool = False
    longest: float = np.inf
    """Tokens of a sequence at most, where all of them are to be seen."""
    reach: float = np.inf
    """Length of a token at most, as it is sent."""

    @property
    def norm(self) -> Norm | None:
        """The norm before the heads."""
        return None if self.eps is None else "rms"

    def of_tokens(self, rows: Array) -> Array:
        """Linear functions (..., d) of tokens z as such of the tokens that are sent."""
        return rows

    @property
    def free(self) -> bool:
        """Whether query tokens may be as short as one likes."""
        return True

    @property
    def shown(self) -> int:
        """Numbers of an answer that show what heads write."""
        return len(self.M)

    def visible(self, last: Array) -> Array | None:
        """(outputs, outputs) onto what of an answer above the query token `last` shows; None: all of it."""
        return None

    def query_tokens(self, size: float, rng: np.random.Generator) -> Array:
        """d + 1 query tokens (d + 1, d) that tell an affine map: x = 0 and d at right angles, `size` long."""
        return np.vstack([np.zeros(self.dim), orthonormal(rng, self.dim) * size])

    @property
    def radius(self) -> float:
        """Of the ball that tokens z are drawn in: all of it that `reach` allows."""
        return float(np.sqrt(self.dim)) * self._within_reach(self.dim)

    def _within_reach(self, d: int) -> float:
        """The largest |z| / sqrt(d) that is sent within reach: |x|^2 = d eps s^2 / (1 - s^2) behind a norm, z = x
        without one."""
        share = self.reach / np.sqrt(d)
        return float(min(1.0, share) if self.eps is None else 1 / np.hypot(1.0, np.sqrt(self.eps) / share))

    @property
    def exact(self) -> bool:
        return self.noise < SHORT_FORMAT

    @property
    def limits(self) -> Limits:
        """What counts as noise in answers like these."""
        return EXACT if self.exact else ROUNDED

    def tokens(self, z: Array) -> Array:
        """Tokens (..., d) that are seen as z, drawn back into the ball where z lies outside."""
        x = z
        if self.eps is not None:
            share = (z * z).sum(axis=-1, keepdims=True) / z.shape[-1]
            x = z * np.sqrt(np.minimum(1, ROTARY.fullest / np.maximum(share, 1e-300)))
            x = x * np.sqrt(self.eps / (1 - np.minimum(share, ROTARY.fullest)))
        return x if self.exact else held(x)

    def seen(self, x: Array) -> Array:
        """What the heads see of tokens x (..., d)."""
        return seen(x, self.eps)

    def ask(self, z: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Answers (n, outputs) above constant and residual to sequences z (n, N, d), and z as really seen."""
        x = self.tokens(z)
        y = (yield Probes(x, phase=phase)) - self.constant
        return (y - x[:, -1] if self.residual else y), self.seen(x)

    def draw(self, basis: Array, size: float, rng: np.random.Generator, n: int | None = None) -> Array:
        """A random token (d,), or n of them, of the span of `basis`, `size` times the radius long."""
        w = rng.standard_normal((1 if n is None else n, len(basis))) @ basis
        w *= size * self.radius / np.linalg.norm(w, axis=1, keepdims=True)
        return np.asarray(w[0] if n is None else w)


def seen(x: Array, eps: float | None) -> Array:
    """x (..., d) behind an RMSNorm of this eps, or as it is."""
    return x if eps is None else np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps))


def read_scene(
    spec: OracleSpec, norm: str | None, sinks: bool, rng: np.random.Generator, empty: Array | None = None
) -> Asking[Scene]:
    """d + 1 queries, phase "values", and with a norm up to seven more. With sinks every token is followed by x = 0.

    `empty`: the answer to x = 0 alone, where it was asked; then d queries.
    """
    d = spec.dim
    size = power_of_two(min(np.sqrt(d), 0.25 * spec.domain.norm_limit))
    U = on_grid(orthonormal(rng, d) * size, size, spec.dtype)
    y = yield _alone(np.vstack([np.zeros((int(empty is None), d)), U]), sinks, "values")
    constant, y = (y[0], y[1:]) if empty is None else (empty, y)
    noise = _rounding(y, spec)
    if norm is None:
        return (yield from _plain(spec, U, y - constant, constant, noise, sinks))
    residual = False
    if spec.outputs == d:
        far = U[:1] * power_of_two(min(2.0**20, 0.5 * spec.domain.norm_limit / size))
        # Behind the norm both lengths are one direction: a longer token moves the answer by itself or not at all.
        moved = yield Probes(np.concatenate([far, U[:1]] if sinks else [far])[:, None], phase="pilot")
        step, near = far[0] - U[0], moved[1] if sinks else y[0]
        residual = bool(np.linalg.norm(moved[0] - near - step) < np.linalg.norm(step) / 2)
    out = y - constant - (U if residual and not sinks else 0.0)
    eps = yield from _eps(U[0], out[0], constant, residual and not sinks, sinks)
    M = np.linalg.solve(seen(U, eps), out).T
    return (yield from _scene(spec, eps, M, constant, residual, noise, sinks))


def _rounding(y: Array, spec: OracleSpec) -> float:
    """Rounding of these answers, relative to the largest: of their number format, of their decimals, or as declared."""
    absolute = max(spec.tolerance, decimal_error(y))
    return max(spec.eps, rounding_unit(y), absolute / max(float(np.abs(y).max()), 1e-300))


def _alone(x: Array, sinks: bool, phase: str) -> Probes:
    """One-token sequences; with sinks an empty token follows, under which weights do not depend on x."""
    x = x[:, None]
    return Probes(np.concatenate([x, np.zeros_like(x)], axis=1) if sinks else x, phase=phase)


def _eps(whole: Array, out: Array, constant: Array, residual: bool, sinks: bool) -> Asking[float]:
    """eps from how a token's answer fades as it is shrunk by s: its share is s sqrt((v + eps) / (s^2 v + eps))."""
    v, eps, k = float((whole * whole).mean()), None, -9
    for _ in range(ROTARY.eps_tokens):
        small = whole * 2.0**k
        y = yield _alone(small[None], sinks, "pilot")
        share = float((y[0] - constant - (small if residual else 0.0)) @ out / (out @ out))
        r, s2v = share**2, v * 4.0**k
        if 0.2 < share < 0.85:
            return s2v * v * (1 - r) / (r * v - s2v)
        if share > 1.001 or share <= 0:
            raise ModelMismatch("one-token answers do not fade as behind an RMSNorm when the token is shrunk.")
        # Too long: shrink below sqrt(eps) as far as one can guess it; too short: the guess is already good.
        guess = s2v * (1 - r) / r if 1 - r > 1e-4 else s2v * 1e-5
        k = int(np.floor(np.log2(0.7 * np.sqrt(max(guess, 1e-300) / v))))
        eps = guess
        if k < -44:
            break
    raise DomainError(
        f"the RMSNorm's eps (about {eps:.1g}) does not show: tokens cannot be brought inside its sphere, which this "
        "learner needs. RMSNorms with eps of 1e-12 and more are served."
    )


def _plain(spec: OracleSpec, U: Array, y: Array, constant: Array, noise: float, sinks: bool) -> Asking[Scene]:
    """No norm: a residual hides in M; heads that share values leave M - 1 of smaller rank than M. Beside sinks M was
    read before an empty token and holds none: a token that no head writes, asked alone, shows it."""
    M = solve_orthogonal(U, y).T
    d, residual = spec.dim, False
    if spec.outputs == d and sinks:
        x = svd(M)[2][-1:] * np.linalg.norm(U[0])
        kept = (yield Probes(x[:, None], phase="pilot")) - constant
        residual = bool(np.linalg.norm(kept - x) < 0.5 * np.linalg.norm(x))
        return (yield from _scene(spec, None, M, constant, residual, noise, sinks))
    if spec.outputs == d:
        residual = _rank(M - np.eye(d), noise) < _rank(M, noise)
    return (yield from _scene(spec, None, M - np.eye(d) if residual else M, constant, residual, noise, sinks))


def _rank(M: Array, noise: float) -> int:
    return int((np.linalg.svd(M, compute_uv=False) > CORE.loud * noise * np.linalg.norm(M, 2)).sum())


def _scene(
    spec: OracleSpec, eps: float | None, M: Array, constant: Array, residual: bool, noise: float, sinks: bool
) -> Asking[Scene]:
    noise *= beside_token(M) if residual else 1.0
    written, empty = yield from writing(M, noise)
    dtype = spec.dtype if noise < SHORT_FORMAT else "float32"
    longest, reach = spec.domain.length_limit, spec.domain.inside
    return Scene(spec.dim, eps, M, constant, residual, noise, dtype, written, empty, sinks, longest, reach)


def require_alone(scene: Scene, rng: np.random.Generator) -> Asking[None]:
    """One query: a fresh token alone is answered by M z. What stands beside attention is told here at once, and not by
    what it makes of all heads. Beside sinks single tokens are not asked alone."""
    if scene.sinks:
        return
    y, z = yield from scene.ask(scene.draw(np.eye(scene.dim), ROTARY.alone_length, rng, 1)[:, None], "pilot")
    wanted = z[0, 0] @ scene.M.T
    gap = float(np.linalg.norm(y[0] - wanted)) / max(float(np.linalg.norm(wanted)), 1e-300)
    if gap > ROTARY.alone_misfit * scene.noise:
        raise ModelMismatch(
            f"single tokens are answered by more than attention makes of them (by {gap:.1g} of it, where answers round "
            f"by {scene.noise:.1g}): a network or a gate beside attention, or values that are not linear in the tokens."
        )


def beside_token(M: Array) -> float:
    """Noise beside a residual over noise without: what heads write, M z, is rounded as its sum with the token is."""
    return float(np.hypot(1.0, np.sqrt(M.shape[1]) / max(np.linalg.norm(M), 1e-300)))


def writing(M: Array, noise: float) -> Asking[tuple[Array, Array]]:
    """Orthonormal bases (r, d), (d - r, d) of the tokens that write and of those that write nothing."""
    Vt, rank = svd(M)[2], _rank(M, noise)
    if rank == 0:
        raise NotIdentifiable(
            f"single tokens show nothing of what heads write where answers are good to {noise:.1g} of their size.",
            code=Code.NOISE,
        )
    # Of tokens that write nothing any basis will do, and last digits choose which.
    written, empty = yield from settle("tokens that write", Vt[:rank], Vt[rank:])
    return written, empty


@dataclass(frozen=True, eq=False)
class CentredScene(Scene):
    """Tokens z (..., dim) are coordinates in the orthonormal rows of `basis` (dim, d), each of mean 0; dim = d - 1."""

    basis: Array = field(kw_only=True)

    @property
    def norm(self) -> Norm | None:
        return "pre"

    @property
    def radius(self) -> float:
        width = self.basis.shape[1]
        return float(np.sqrt(width)) * self._within_reach(width)

    def tokens(self, z: Array) -> Array:
        return super().tokens(z @ self.basis)

    def seen(self, x: Array) -> Array:
        # Rounding to float32 leaves a mean, which the target takes away as well.
        return super().seen((x @ self.basis.T) @ self.basis) @ self.basis.T

    def of_tokens(self, rows: Array) -> Array:
        return np.asarray(rows @ self.basis)
