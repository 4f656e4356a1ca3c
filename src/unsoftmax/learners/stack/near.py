"""Heads of one layer behind a norm whose ranges overlap: what each writes, by the algebra of stacks.

One layer needs no long tokens: its norm turns tokens into whatever is inside a ball, and what heads write is read to
the rounding of the answers, not beside tokens a million times longer. Its constant and eps are known from single
tokens, so that nothing has to be fitted together, however many parameters there are.

Theory: docs/theory/stacks.md, "A deep pre-norm stack", heads apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit

from unsoftmax.errors import Code, ModelMismatch
from unsoftmax.learners.core.base import Asking, Outcome
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.stack.apart import tell_apart
from unsoftmax.learners.stack.constants import STACK
from unsoftmax.learners.stack.far import Far
from unsoftmax.learners.stack.frame import Frame
from unsoftmax.learners.stack.star import read_fits, read_opposite
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array, Probes, one_row
from unsoftmax.probes.slices import Slice, slice_across, turned
from unsoftmax.probes.sphere import sphere
from unsoftmax.solvers.logit_fit import LogitFit


@dataclass(frozen=True, eq=False)
class Inside:
    """What the ball holds: coordinates (..., D) as `tokens`, `alone` what one token at the rows of (n, D) is answered,
    basis U (D, d), its `radius`, and the `noise` of the answers, relative."""

    tokens: Callable[[Array], Array]
    alone: Callable[[Array], Array]
    U: Array
    radius: float
    noise: float


@dataclass(frozen=True, eq=False)
class _Edge(Frame):
    """Tokens at the edge of the ball: there they move the most."""

    edge: float = 1.0

    @property
    def radius(self) -> float:
        return self.edge


@dataclass(eq=False)
class Near(Far):
    """The same questions as `Far`, at tokens inside the ball; q moves in the few directions S (D, k)."""

    inside: Inside | None = None
    S: Array | None = None
    size: float = 1.0
    """Typical entry of an answer."""

    @property
    def noise(self) -> float:
        assert self.inside is not None
        return 4 * self.inside.noise * self.size

    @property
    def outputs(self) -> int:
        assert self.inside is not None
        return self.inside.alone(np.zeros((1, self.frame.D))).shape[1]

    @property
    def rough(self) -> float:
        return self.clear

    def cut(self, delta: Array, directions: Array | None = None) -> Slice:
        return slice_across(delta, self.frame.radius, self.S if directions is None else directions)

    def ask(self, q: Array, others: Array, counts: Array, length: Array | float, phase: str) -> Asking[Array]:
        return (yield from self.written(q, others, counts, phase))

    def written(self, q: Array, others: Array, counts: Array, phase: str = "main") -> Asking[Array]:
        assert self.inside is not None
        tokens = self.inside.tokens(np.concatenate([others, q[:, None]], axis=1))
        y = yield Probes(tokens, np.column_stack([counts, np.ones(len(q), np.int64)]), phase)
        return np.asarray(y - self.inside.alone(q))


@dataclass(frozen=True, eq=False)
class Written:
    """P (n, outputs, D) of all heads; `left` (n,): what noise has left in each, by its Frobenius norm."""

    P: Array
    left: Array


@dataclass(frozen=True, eq=False)
class _Residues:
    """One displacement: its slice, the fit, the size (n,) of what errors of the answers leave in the residues, and the
    misfit, absolute."""

    cut: Slice
    fit: LogitFit
    left: Array
    misfit: float


def read_written(inside: Inside, dtype: str, rng: np.random.Generator) -> Asking[Written]:
    """What every head writes: residues at D displacements, fitted from one at which algebra told heads apart."""
    D = len(inside.U)
    frame = _Edge("layer", inside.U.T, dtype, edge=CORE.edge * inside.radius)
    edge = frame.radius * orthonormal(rng, D, min(D, CORE.entries_for_scale))
    S = orthonormal(rng, D, min(STACK.directions_near, D - 2)).T
    size = float(np.abs(inside.alone(edge)).max())
    near = Near(frame, (1.0,), rng, np.zeros(1), inside=inside, S=S, size=size)
    yield from _require_affine(near)
    centre = yield from _centre(near)
    delta = centre.cut.delta
    towards = np.linalg.qr(np.column_stack([delta, rng.standard_normal((D, D))]))[0][:, 1:D].T
    rays = [centre, *(yield from _rays(near, centre, towards))]
    inverse = np.linalg.inv(np.array([ray.cut.delta for ray in rays]))
    P = np.einsum("hdj,ij->hdi", np.stack([ray.fit.R.T for ray in rays], axis=2), inverse)
    left = np.stack([ray.left for ray in rays], axis=1) * np.linalg.norm(inverse, axis=0)
    return Written(P, np.linalg.norm(left, axis=1))


def confirmed(told: Outcome, inside: Inside, enough: float, rng: np.random.Generator) -> Asking[tuple[Outcome, float]]:
    """The layer that was told apart, with the error that fresh sequences show in place of the one its readings may
    leave, and what they are missed by; refused where that is more than `enough`.

    Readings lose digits one after the other, and what they may leave in the worst case is a thousand times what they
    do leave: a rule for small weights would hide in it. Scores are near a tie, where no such rule shows, and every
    error of a head does.
    """
    model = told.model
    assert isinstance(model, AttentionLayer)
    assert told.allows.parameters is not None
    D = len(inside.U)
    w = CORE.edge * inside.radius * sphere(rng, (STACK.sequences_that_confirm, STACK.frozen_tokens, D))
    q = w[:, -1:]
    seen = model.normalised(inside.tokens(w))
    logits = np.einsum("hbd,bnd->bhn", model.key_directions(seen[:, -1]), seen - seen[:, -1:])
    hot = np.abs(logits).max(axis=(1, 2), initial=STACK.logit_of_a_tie)
    tokens = inside.tokens(q + (STACK.logit_of_a_tie / hot)[:, None, None] * (w - q))
    y = yield Probes(tokens, phase="pilot")
    alone = inside.alone(q[:, 0])
    off = y - alone - (model(tokens) - model(tokens[:, -1:]))
    misfit = float(np.linalg.norm(off) / max(float(np.linalg.norm(y - alone)), 1e-300))
    if not misfit <= enough:
        raise ModelMismatch(f"the layer that was told apart misses fresh sequences by {misfit:.2g} of what is written.")
    bound = min(CORE.stated_over_rounding * misfit, told.allows.relative_error)
    statement = (
        f"{CORE.stated_over_rounding:g} times what {len(q)} fresh sequences, whose scores nearly tie, are missed by"
    )
    parameters = replace(told.allows.parameters, bound=bound, statement=statement)
    return replace(told, allows=replace(told.allows, parameters=parameters)), misfit


def _require_affine(near: Near) -> Asking[None]:
    """Refuse single tokens that are not answered as attention alone answers them."""
    assert near.inside is not None
    q = near.directions(CORE.checks)
    y = yield one_row(near.inside.tokens(q), phase="pilot")
    off = float(np.abs(y - near.inside.alone(q)).max())
    if off > CORE.loud * near.noise:
        raise ModelMismatch(
            f"single tokens are not answered affinely behind the norm, by {off / near.size:.1g} of the answers: more "
            "than attention stands there (a network beside or behind it, a gate, a clip), or answers are off by as "
            "much (rounded, and not said to be: declare tolerance).",
            code=Code.NETWORK,
        )


def _centre(near: Near) -> Asking[_Residues]:
    """The heads at a displacement where logits are so small that those of neighbours are near."""
    for again in range(STACK.tries):
        apart = yield from tell_apart(near, again)
        first, R = apart.slice, apart.fit.R
        opposite = yield from read_opposite(near, first, apart.fit, "main")
        theta = apart.fit.theta
        typical = float(np.sqrt(theta[:, 0] ** 2 + (theta[:, 1:] ** 2).mean(axis=1)).max())
        share = min(1.0, STACK.logit_near / typical)
        # The score of delta with itself falls with the square of its length.
        theta = share * np.column_stack([share * opposite.own + opposite.offset, theta[:, 1:]])
        cut = near.cut(share * first.delta, first.E)
        (found,) = yield from _read(near, [cut], first, theta, share * R, "main" if again == 0 else "repair")
        if found.misfit <= near.clear:
            return found
    raise ModelMismatch(
        f"heads that algebra told apart are not found again at shorter displacements: they miss by {found.misfit:.2g}, "
        f"where noise leaves {near.clear:.2g}."
    )


def _rays(near: Near, centre: _Residues, towards: Array) -> Asking[list[_Residues]]:
    """Residues at displacements turned towards the rows (m, D); those that got stuck again, nearer."""
    S = centre.cut.E[:, : STACK.directions_of_a_ray]
    done: dict[int, _Residues] = {}
    open_ = list(range(len(towards)))
    for number, angle in enumerate(STACK.turns_of_displacement):
        cuts = [near.cut(turned(centre.cut.delta, towards[i], angle), S) for i in open_]
        phase = "main" if number == 0 else "repair"
        found = yield from _read(near, cuts, centre.cut, centre.fit.theta, centre.fit.R, phase)
        done |= {i: ray for i, ray in zip(open_, found, strict=True) if i not in done or ray.misfit < done[i].misfit}
        open_ = [i for i in open_ if done[i].misfit > near.clear]
        if not open_:
            return [done[i] for i in range(len(towards))]
        if len(open_) > STACK.most_stuck * len(towards):
            break
    worst = max(done[i].misfit for i in open_)
    raise ModelMismatch(
        f"heads that algebra told apart are not found again at {len(open_)} of {len(towards)} displacements near by: "
        f"they miss by {worst:.2g}, where noise leaves {near.clear:.2g}."
    )


def _read(near: Near, cuts: list[Slice], start: Slice, theta: Array, R: Array, phase: str) -> Asking[list[_Residues]]:
    """Residues on slices, from logits theta (n, p) on a slice near by, and residues R (outputs, n) there."""

    def foretold(_: Slice, q: Array) -> tuple[Array, Array]:
        return (theta[:, :1] + theta[:, 1:] @ (start.E.T @ q.T) / start.rho).T, R

    m = cuts[0].features + len(theta) + STACK.ray_answers_to_spare
    residues = []
    for cut, (fit, F, log_k) in zip(cuts, (yield from read_fits(near, cuts, m, foretold, phase)), strict=True):
        misfit = fit.residual * float(np.sqrt(np.mean((expit(F @ fit.theta.T - log_k[:, None]) @ fit.R.T) ** 2)))
        if misfit <= near.clear:
            fit = _in_order(fit, theta[:, :1] + theta[:, 1:] @ (start.E.T @ cut.E) @ F[:, 1:].T, F, R)
            residues.append(_Residues(cut, fit, _left(fit, F, log_k, max(near.noise, misfit)), misfit))
        else:
            # Also of a fit that has run away.
            residues.append(_Residues(cut, fit, np.full(len(theta), np.inf), np.inf if np.isnan(misfit) else misfit))
    return residues


def _in_order(fit: LogitFit, t: Array, F: Array, R: Array) -> LogitFit:
    """The heads of a fit in the order of logits t (n, m) and residues R (outputs, n) near by: where few directions of
    P are strong residues may turn more than two heads are apart, and logits tell."""
    written = np.linalg.norm(R[:, :, None] - fit.R[:, None], axis=0) ** 2 / np.mean(np.linalg.norm(R, axis=0) ** 2)
    heard = ((t[:, None] - fit.theta @ F.T) ** 2).mean(axis=2) / np.mean(t**2)
    order = linear_sum_assignment(written + heard)[1]
    return LogitFit(fit.theta[order], fit.R[:, order], fit.residual)


def _left(fit: LogitFit, F: Array, log_k: Array, error: float) -> Array:
    """What errors of this size of the answers leave of each residue (n,), in the first order.

    Residues R (outputs, n) follow from answers S R' by least squares, and from logits that follow from them too.
    """
    S = expit(F @ fit.theta.T - log_k[:, None])
    inverse = np.linalg.pinv(S)
    moved = ((S * (1 - S))[:, :, None] * F[:, None]).reshape(len(S), -1)
    across = moved - S @ (inverse @ moved)
    sizes = np.repeat(np.repeat(fit.R.T @ fit.R, F.shape[1], axis=0), F.shape[1], axis=1)
    logits = np.linalg.pinv((across.T @ across) * sizes, hermitian=True)
    turned_by = inverse @ moved
    by_logits = np.einsum("hi,ij,hj->h", turned_by, logits * sizes, turned_by, optimize=True)
    own = len(fit.R) * (inverse**2).sum(axis=1)
    # A fit leaves less than the errors were, by the share of the unknowns.
    free = 1 - len(fit.theta) / len(S) - fit.theta.size / (len(S) * len(fit.R))
    return np.asarray(error / np.sqrt(max(free, 1 / len(S))) * np.sqrt(own + np.maximum(by_logits, 0.0)))
