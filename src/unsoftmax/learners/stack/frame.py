"""Which norm stands before the layers: one-token queries, ordinary and very long.

Theory: docs/theory/stacks.md, "A deep pre-norm stack".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.models.stack_forms import StackNorm
from unsoftmax.precision import SHORT_FORMAT
from unsoftmax.probes.base import Array, one_row
from unsoftmax.spec import OracleSpec

FROZEN = {"float64": 2.0**60, "float32": 2.0**40}
"""Length of frozen tokens: a unit in their last place is beyond all that layers write, so they are not changed at all;
their squares are still numbers of the format."""

_ROUNDED = {"float64": 1e-9, "float32": 1e-4}
"""Change of an answer over its size, by the number format that answers show, beyond which it is another: a thousand
roundings of float32, and where float64 shows, more than any stack adds to them."""


@dataclass(frozen=True, eq=False)
class Final:
    """A norm on top of all layers: answers are gamma * norm(x) + beta, both (d,)."""

    gamma: Array
    beta: Array


@dataclass(frozen=True, eq=False)
class Frame:
    """Normalised tokens are T w, |w| = radius = sqrt d: T (d, D) is the identity, or a basis off the mean.

    Without a norm (None) nothing is frozen, and single tokens are answered affinely.
    """

    norm: StackNorm | None
    T: Array
    dtype: str
    one: tuple[Array, Array] = field(default_factory=lambda: (np.empty(0), np.empty(0)))
    """An ordinary token and its answer."""
    final: Final | None = None

    @property
    def d(self) -> int:
        return len(self.T)

    @property
    def D(self) -> int:
        return self.T.shape[1]

    @property
    def radius(self) -> float:
        return float(np.sqrt(self.d))

    @property
    def unit(self) -> float:
        """Rounding of the answers' number format."""
        return float(np.finfo(self.dtype).eps)

    @property
    def exact(self) -> float:
        """Misfit, relative, of a stack that explains ordinary answers."""
        return 1e-12 if self.dtype == "float64" else 1e-4

    @property
    def outputs(self) -> int:
        """Numbers in which what is written shows: behind a norm the mean is lost."""
        return self.d if self.final is None else self.D

    @property
    def basis(self) -> Array:
        """Those numbers as tokens, (d, outputs)."""
        return np.eye(self.d) if self.final is None else self.T

    def added(self, y: Array, q: Array, last: Array, length: Array) -> Array:
        """What layers add (B, outputs) to last tokens `last` (B, d) = length * q, from their answers y (B, d).

        A final norm answers with directions: the part along q (B, D) is lost, and what is across it is known up to the
        factor 1 / (1 + a / length) of that part a.
        """
        if self.final is None:
            return np.asarray(y - last)
        seen = self.normalised(y)
        along = (seen * q).sum(axis=1, keepdims=True) / self.d
        return np.asarray(length[:, None] * (seen / along - q))

    def normalised(self, y: Array) -> Array:
        """What a final norm made (B, D) of last tokens, in coordinates, from answers y (B, d)."""
        assert self.final is not None
        return np.asarray(((y - self.final.beta) / self.final.gamma) @ self.T)

    def differ(self, a: Array, b: Array) -> bool:
        """Whether two answers to ordinary tokens are not the same."""
        return bool(np.abs(a - b).max() > _ROUNDED[self.dtype] * (1 + max(np.abs(a).max(), np.abs(b).max())))

    @property
    def frozen(self) -> float:
        """Scale at which tokens keep their direction through all layers."""
        return FROZEN[self.dtype]

    def tokens(self, w: Array) -> Array:
        """Directions (..., D) as tokens (..., d)."""
        return np.asarray(w @ self.T.T)


def find_frame(spec: OracleSpec, rng: np.random.Generator) -> Asking[Frame]:
    """Three one-token queries, phase "pilot", four without a norm; raises where another one stands there."""
    d = spec.dim
    require_far(spec)
    x = rng.standard_normal((2, d))
    far = FROZEN[spec.dtype] * x[1]
    y = yield one_row(np.stack([x[0], x[0] + 1.0, far]), phase="pilot")
    dtype = "float32" if max(spec.eps, rounding_unit(y)) > SHORT_FORMAT else "float64"
    if np.abs(y[2] - far).max() > STACK.same_answer * np.abs(far).max():
        if np.abs(y[2]).max() < 2.0**-20 * np.abs(far).max():
            return (yield from _behind_norm(spec, x, y, dtype, rng))
        (both,) = yield one_row((x[0] + x[1])[None], phase="pilot")
        _refuse_bent(y[2] / FROZEN[spec.dtype], both - y[0])
        return Frame(None, np.eye(d), dtype, (x[0], y[0]))
    follows = np.abs(y[1] - y[0] - 1.0).max() <= STACK.same_answer * (1 + np.abs(y[:2]).max())
    frame = _normed(follows, dtype, x[0], y[0])
    if STACK.fewest_dimensions > frame.D:
        raise NotIdentifiable(
            f"normalised tokens have {frame.D} dimensions; telling heads apart takes {STACK.fewest_dimensions} at "
            f"least (dim = {d})."
        )
    return frame


def require_far(spec: OracleSpec) -> None:
    """Refuse a domain without room for frozen tokens."""
    needed = FROZEN[spec.dtype] * 4 * np.sqrt(spec.dim)
    if spec.domain.norm_limit < needed:
        raise DomainError(
            f"AttentionStack needs tokens of norm {needed:.2g}, which no layer can turn, and max_norm is "
            f"{spec.domain.max_norm:.3g}; raise max_norm."
        )


def _behind_norm(spec: OracleSpec, x: Array, y: Array, dtype: str, rng: np.random.Generator) -> Asking[Frame]:
    """gamma and beta from long tokens, which no layer turns: x[1] (d,), answered by y[2], and three more."""
    d = spec.dim
    invariant = np.abs(y[1] - y[0]).max() <= STACK.same_answer * np.abs(y[:2]).max()
    X = np.vstack([x[1], rng.standard_normal((STACK.long_tokens, d))])
    seen = X - X.mean(axis=1, keepdims=True) if invariant else X
    seen = seen / np.sqrt((seen**2).mean(axis=1, keepdims=True))
    more = yield one_row(FROZEN[spec.dtype] * X[1:], phase="pilot")
    answers = np.vstack([y[2], more])
    centre, mean = seen.mean(axis=0), answers.mean(axis=0)
    gamma = ((seen - centre) * (answers - mean)).sum(axis=0) / ((seen - centre) ** 2).sum(axis=0)
    beta = mean - gamma * centre
    size = np.abs(answers).max()
    if np.abs(gamma * seen + beta - answers).max() > STACK.same_answer * size:
        raise ModelMismatch(
            "answers to very long tokens stay bounded, and are not a norm of these tokens: norms stand after "
            "the layers (post-norm, as in BERT), or something else is on top. This learner serves norms first."
        )
    if np.abs(gamma).min() <= STACK.same_answer * size or dtype != "float64":
        raise NotIdentifiable(
            "the final norm of this stack hides some outputs (a gamma of 0), or float32 answers leave too few digits "
            "of what heads write behind it."
        )
    return _normed(invariant, dtype, x[0], y[0], Final(gamma, beta))


def _normed(layer: bool, dtype: str, x: Array, y: Array, final: Final | None = None) -> Frame:
    """Behind a LayerNorm, which takes the mean off, or an RMSNorm; the token x (d,) is answered by y."""
    T = np.eye(len(x))
    if layer:
        T = np.linalg.qr(np.column_stack([np.ones(len(x)), T[:, 1:]]))[0][:, 1:]
    return Frame("layer" if layer else "rms", T, dtype, (x, y), final)


def _refuse_bent(linear: Array, seen: Array) -> None:
    if np.abs(linear - seen).max() > STACK.same_answer * np.abs(seen).max():
        raise ModelMismatch(
            "answers to very long tokens are not these tokens, so no norm stands before the layers, and answers to "
            "single tokens are not affine, as those of attention alone would be: something else stands between them."
        )
