"""Heads in orthogonal subspaces: Proposition C.2, and the subspaces from Hessians where they are not known.

Theory: docs/theory/orthogonal-heads.md, "Proposition C.2".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch
from unsoftmax.learners.approximate import Approximate
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.driver import driven
from unsoftmax.learners.core.readable import INVISIBLE, SATURATED, Steps, find_scale
from unsoftmax.learners.core.reductions import in_subspace, subspace_spec
from unsoftmax.learners.core.settling import begun, settle, settle_list
from unsoftmax.learners.heads.ground import Ground, read_ground
from unsoftmax.learners.single.constants import SINGLE
from unsoftmax.learners.single.measure import faintest
from unsoftmax.learners.single_head import SingleHead
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead as Heads
from unsoftmax.models.single_head import SingleHead as Head
from unsoftmax.precision import ARITHMETIC
from unsoftmax.probes.base import Array, Request
from unsoftmax.probes.scales import require_pairs
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.block_diagonal import Blocks, finest_blocks
from unsoftmax.solvers.cross import NO_DIRECTION
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class OrthogonalHeads:
    """Learn sum_h of heads whose W_h and v_h live in mutually orthogonal subspaces U_h (Assumption C.1).

    bases    orthonormal bases (d, d_h) of the U_h: Theorem 4.1 runs inside each, sum_h (d_h + d_h^2) queries.
             None finds them: Hessians of F(z) = f([z + b ; b]) at z = 0 for several b are block-diagonal in the U_h.
             Found subspaces are trusted if what couples them is far below what holds each together; the certificate
             has both figures.
    """

    bases: Sequence[Array] | None = None

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        require_pairs(spec, "OrthogonalHeads")
        if self.bases is None:
            if spec.domain.max_norm is not None:
                raise DomainError(
                    "finding the subspaces needs tokens of free length and max_norm is set; pass the bases, or use "
                    "MultiHead, which works inside a norm bound."
                )
            return self._found_forecast(spec.dim)
        _require_orthonormal(self.bases, spec.dim)
        dims = [basis.shape[1] for basis in self.bases]
        phases = {"values": sum(dims), "main": theory.orthogonal_heads_queries(dims) - sum(dims)}
        if spec.tolerance > 0:
            again = sum(Approximate().forecast(subspace_spec(spec, k)).maximum or 0 for k in dims)
            return Forecast(phases, ranges={"pilot and repair": (0, again)}, model=Heads, heads=(0, len(dims)))
        return Forecast(phases, sum(64 + k * k // 100 for k in dims), model=Heads, heads=(0, len(dims)))

    @staticmethod
    def _found_forecast(d: int) -> Forecast:
        """Subspaces of dimension 1 to d: 3 (k + 1) queries for each of d (d + 1) / 2 entries of a Hessian."""
        pairs = d * (d + 1) // 2
        ranges = {
            "discovery": (6 * pairs, 3 * (d + 1) * pairs),
            "values": (d, 2 * d),
            "main": (d, d * d),
            "pilot and repair": (0, 100 + 64 * d + d * d // 100),
        }
        return Forecast(ranges=ranges, model=Heads, heads=(0, d))

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._found(spec, seed) if self.bases is None else self._given(list(self.bases), spec, seed)

    def _given(self, bases: list[Array], spec: OracleSpec, seed: int) -> Program:
        """Proposition C.2: one single-head learner per subspace."""
        W, v, notes = [], [], []
        error: float | None = None
        # Answers within a tolerance are outscaled, or used as well as they can be.
        inner = Approximate() if spec.tolerance > 0 else SingleHead()
        programs = [in_subspace(inner.program(subspace_spec(spec, basis.shape[1]), seed), basis) for basis in bases]
        asked = [begun(program) for program in programs]
        values = []
        for request in asked:
            values.append((yield request))
        largest = max((float(np.abs(y).max()) for y in values), default=0.0)
        for h, (program, first, y, basis) in enumerate(zip(programs, asked, values, bases, strict=True)):
            if np.abs(y).max() <= max(CORE.loud * spec.eps * largest, 4 * spec.tolerance):
                program.close()
                notes.append(f"subspace {h + 1} answers nothing: its v is 0, the head is dropped.")
                continue
            outcome = yield from _resumed(program, first, y)
            head = outcome.model
            assert isinstance(head, Head)
            scored = float(np.linalg.norm(head.W)) > faintest(spec)
            W.append(basis @ head.W @ basis.T if scored else np.zeros((spec.dim, spec.dim)))
            if outcome.allows.precision is not None:
                error = max(error or 0.0, outcome.allows.precision.W / max(float(np.linalg.norm(head.W)), 1e-300))
            v.append(basis @ head.v)
        d = spec.dim
        model = Heads(np.array(W).reshape(len(W), d, d), np.array(v).reshape(len(v), d))
        stated = None if error is None else Claim(RELATIVE_ERROR, error)
        return Outcome(model, tuple(notes), allows=Allowance(stated))

    def _found(self, spec: OracleSpec, seed: int) -> Program:
        rng = np.random.default_rng(seed)
        ground = yield from read_ground(spec, rng)
        blocks = yield from find_subspaces(ground, rng)
        # Any basis of a subspace will do, and last digits choose which.
        blocks = replace(blocks, bases=(yield from settle_list("bases", blocks.bases)))
        outcome = yield from self._given(blocks.bases, spec, seed)
        model = _with_flat(outcome.model, blocks, ground)
        sizes = ", ".join(str(basis.shape[1]) for basis in blocks.bases) or "none"
        statement = (
            f"coupling of the {len(blocks.bases)} subspaces (dimensions {sizes}) next to what holds each together"
        )
        bound = 1.0 if np.isinf(blocks.within) else blocks.within / CORE.audible
        claim = Claim("subspaces part", bound, blocks.across, statement=statement)
        return Outcome(model, outcome.notes, (claim,), outcome.allows)


def _with_flat(model: Model, blocks: Blocks, ground: Ground) -> Heads:
    """What single tokens answer outside the subspaces found is the value of a head with W = 0: no Hessian shows it."""
    assert isinstance(model, Heads)
    inside = sum((basis @ (basis.T @ ground.V) for basis in blocks.bases), np.zeros(ground.dim))
    rest = ground.V - inside
    # The subspaces are known no better than what couples them.
    if np.linalg.norm(rest) <= max(NO_DIRECTION, CORE.audible * blocks.across) * np.linalg.norm(ground.V):
        return model
    flat = np.zeros((1, ground.dim, ground.dim))
    return Heads(np.concatenate([model.W, flat]), np.vstack([model.v, rest]))


def _resumed(program: Program, first: Request, answer: Array) -> Program:
    """The rest of a program whose first question was answered elsewhere."""

    def ask(request: Request) -> Asking[Array]:
        return answer if request is first else (yield request)

    return driven(program, ask, first)


def _require_orthonormal(bases: Sequence[Array], d: int) -> None:
    if not bases:
        raise InvalidArgument("`bases` must hold at least one basis (got none); bases=None finds them.")
    for basis in bases:
        if np.ndim(basis) != 2 or np.shape(basis)[0] != d or not 1 <= np.shape(basis)[1] <= d:
            raise InvalidArgument(f"`bases`: every basis must have shape ({d}, d_h) (got {np.shape(basis)}).")
    joined = np.hstack(list(bases))
    if not np.abs(joined.T @ joined - np.eye(joined.shape[1])).max() <= 1e-8:
        raise InvalidArgument(
            "the bases must be orthonormal, and orthogonal to each other (Assumption C.1); bases=None finds them."
        )


def find_subspaces(ground: Ground, rng: np.random.Generator) -> Asking[Blocks]:
    """Hessians for random b until their common range stops growing, then the finest common blocks."""
    d = ground.dim
    (size,) = yield from settle("size", (yield from _small_size(ground, rng)))
    matrices: list[Array] = []
    rank, noise, same = 0, 64 * ground.noise / _small(ground), 0
    while same < 2 and len(matrices) < d + 3:
        b = rng.standard_normal(d)
        # Second differences over steps this small show the last digits of the tokens.
        (b,) = yield from settle("direction", b / np.linalg.norm(b))
        matrices.append((yield from _hessian(ground, float(size), b)))
        stacked = np.hstack(matrices)
        levels = np.linalg.svd(stacked, compute_uv=False)
        new = int((levels > 1e2 * noise * d * levels[0]).sum()) if levels[0] > 0 else 0
        same, rank = (same + 1 if new == rank else 0), new
    blocks = finest_blocks(np.array(matrices), noise * d, rng)
    if blocks.across * CORE.audible > blocks.within:
        raise ModelMismatch(
            f"no orthogonal subspaces stand out: they are coupled by {blocks.across:.1g} and held together by only "
            f"{blocks.within:.1g}. The heads do not live in orthogonal subspaces; use MultiHead."
        )
    return blocks


def _small(ground: Ground) -> float:
    """Size of half a logit: where answers are coarse it grows until their noise is what the sixth power leaves."""
    return max(SINGLE.half_logit, 0.2 * ground.noise ** (1 / 7)) if ground.noise > ARITHMETIC else SINGLE.half_logit


def _small_size(ground: Ground, rng: np.random.Generator) -> Asking[float]:
    """Length of z, for unit b, at which attention moves the answer by a small share of its size."""
    d, small = ground.dim, _small(ground)
    scale = max(float(np.linalg.norm(ground.V)), 1e-300)

    def look(size: float) -> Asking[float]:
        z, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.standard_normal((2, 8, d)))
        F = yield from ground.pairs(z * size, b, phase="pilot")
        moved = float(np.linalg.norm(2 * F / size - z @ ground.V))
        # A difference of nearly equal numbers, and the next length of the tokens follows from it.
        (tilt,) = map(float, (yield from settle("tilt", moved * np.sqrt(d / 8) / scale)))
        return SATURATED if tilt > 0.3 else INVISIBLE if tilt < 1e-6 else tilt / small

    found = yield from find_scale(look, 1.0, Steps(0.25, 2.0, shorter=1 / 8, limit=2.0**96))
    if found.size == SATURATED:
        raise ModelMismatch(
            "attention's effect on the answer does not shrink with the tokens; no softmax head does that."
        )
    return found.scale if found.size >= 0.25 else 1.0


def _hessian(ground: Ground, size: float, b: Array) -> Asking[Array]:
    """Hessian (d, d) at z = 0 of F(z, b) = sum_h (z.v_h) sigma(z'W_h b): the symmetric part of sum_h v_h (W_h b)' / 2.

    2 F(z) - z.V = sum_h (z.v_h) tanh(z'W_h b / 2) is even in z; three lengths remove its fourth and sixth order.
    """
    d = ground.dim
    i, j = np.triu_indices(d, 1)
    z = np.vstack([np.eye(d), (np.eye(d)[i] + np.eye(d)[j]) / np.sqrt(2)])
    steps = size * np.array([1.0, 2.0, 4.0])
    asked = np.vstack([z * step for step in steps])
    F = yield from ground.pairs(asked, b, phase="discovery")
    near, middle, far = (2 * F - asked @ ground.V).reshape(3, -1) / steps[:, None] ** 2
    quadratic = (16 * (4 * near - middle) - (4 * middle - far)) / 45
    A = np.diag(quadratic[:d])
    A[i, j] = A[j, i] = quadratic[d:] - (quadratic[i] + quadratic[j]) / 2
    return np.asarray(A)
