"""The whole program: the readout, tokens that write nothing, tables, values, and then as for a layer.

The block as the steps of `rotary` want to see it: a layer on normalised tokens, whose query tokens are endless.

Where each head writes, who shares values, and the RMSNorm's eps.

Random tokens show how many dimensions heads write and who shares values; tokens made for it show it well.

Theory: docs/theory/attention-layer.md, "Behind a network".
Theory: docs/theory/attention-layer.md, "Behind a network", values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.errors import DomainError, ModelMismatch, NotIdentifiable
from unsoftmax.learners.block.constants import BLOCK
from unsoftmax.learners.block.fits import (
    Fits,
    Spans,
    choose,
    fit_tokens,
    moved_values,
    read_columns,
    read_everywhere,
    rough_values,
)
from unsoftmax.learners.block.infinity import Infinity, read_out
from unsoftmax.learners.block.quiet import Quiet, find_quiet
from unsoftmax.learners.block.table import Table, read_tables
from unsoftmax.learners.core.base import Asking, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.settling import settle
from unsoftmax.learners.rotary.kind import Kind, find_kind
from unsoftmax.learners.rotary.llama import explained, heads_of
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.values import Values, sharing
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.models.attention_layer import AttentionLayer
from unsoftmax.models.layer_behind import LayerBehind
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True, eq=False)
class FarScene(Scene):
    """Context tokens as in a layer, query tokens on the sphere; answers are those of attention alone."""

    far: Infinity = field(kw_only=True)

    @property
    def exact(self) -> bool:
        return True

    @property
    def free(self) -> bool:
        return False

    @property
    def shown(self) -> int:
        return self.dim - self.far.normed

    def visible(self, last: Array) -> Array | None:
        return self.far.visible(last) if self.far.normed else None

    def query_tokens(self, size: float, rng: np.random.Generator) -> Array:
        """d at right angles and one opposite to them all, on the sphere whatever their size."""
        U = orthonormal(rng, self.dim)
        return np.asarray(self.far.on_sphere(np.vstack([U, -U.sum(axis=0)])))

    def draw(self, basis: Array, size: float, rng: np.random.Generator, n: int | None = None) -> Array:
        """Query tokens, as long as they are seen."""
        return self.far.on_sphere(super().draw(basis, 1.0, rng, n))

    def ask(self, z: Array, phase: str) -> Asking[tuple[Array, Array]]:
        """Answers (n, d) of attention to sequences z (n, N, d), as far as visible, and z as really seen."""
        x, q = self.tokens(z[:, :-1]), self.far.on_sphere(z[:, -1])
        y = yield from self.far.added(x, q, phase)
        return y + q @ self.M.T, np.concatenate([self.seen(x), q[:, None]], axis=1)


def block(spec: OracleSpec, normed: bool, preset: str, rng: np.random.Generator) -> Program:
    """The attention of a pre-norm block, or of a one-layer language model behind its final norm."""
    _require_endless(spec)
    kind = yield from find_kind(spec, rng)
    if kind.sinks:
        raise NotIdentifiable(
            "copies of a token change the answer of a block: sinks take a share of the weight. Behind a network they "
            "are not learned; ask the layer itself."
        )
    far = yield from read_out(spec, normed, rng)
    if far is None:
        raise NotIdentifiable(
            f"{spec.outputs} answers do not show all {spec.dim} directions of the stream: heads are told apart by "
            "where they write. Ask for hidden states, or for more logits than there are dimensions."
        )
    plan = PLANS[preset]
    reader = yield from _reader(far, min(spec.domain.length_limit, kind.reach), rng)
    heads = yield from heads_of(reader, kind, plan, rng)
    outcome = yield from explained(heads, spec, kind, plan, rng)
    assert isinstance(outcome.model, AttentionLayer)
    model = LayerBehind(outcome.model, far.readout.astype(spec.dtype), normed)
    # What is read has no residual: whether the target has one, its network hides.
    notes = tuple(note.replace(", without a residual", "") for note in outcome.notes)
    return replace(outcome, model=model, notes=(*notes, *_found(far, spec, kind)))


def _require_endless(spec: OracleSpec) -> None:
    if spec.domain.norm_limit < 2 * BLOCK.endless_length * np.sqrt(spec.dim):
        raise DomainError(
            f"a block's attention is read at last tokens of norm {BLOCK.endless_length:.0e} and more, where its "
            "network drops out, "
            f"and max_norm is {spec.domain.max_norm}; ask the layer itself."
        )
    if spec.tolerance > 0:
        raise ModelMismatch(
            "more than attention answers to single tokens (a network behind it, or a function of the last token beside "
            "it), and beside endless tokens declared noise hides what heads write."
        )


def _reader(far: Infinity, longest: float, rng: np.random.Generator) -> Asking[Reader]:
    """Weights of all heads from one answer, once it is known what heads write."""
    quiet = yield from find_quiet(far, rng)
    tables = yield from read_tables(quiet, 2 if far.normed else 1)
    rough = yield from find_spans(quiet, tables)
    fits = yield from fit_tokens(far, tables[0], rough, rough_values(quiet, rough), "fair")
    spans = yield from read_spans(quiet, tables, rough, fits)
    fits = yield from fit_tokens(far, tables[0], spans, moved_values(fits, spans), "full")
    eps = yield from find_eps(far, tables[0], spans)
    values = values_of(spans, fits)
    O, V, kept = yield from settle("values", values.O, values.V, eps)
    values = replace(values, O=O, V=V)
    return Reader((yield from far_scene(far, values, float(kept), longest)), values)


def _found(far: Infinity, spec: OracleSpec, kind: Kind) -> tuple[str, str]:
    top = "A final RMSNorm and a linear readout" if far.normed else "A linear readout"
    order = " Positions that act on empty query tokens are taken for a query bias." if kind.order == "bias" else ""
    digits = f"{far.noise:.0e}"
    return (
        f"More than attention answers to single tokens: a network behind it, or a function of the last token alone "
        f"beside it, which endless query tokens do not tell apart. It was not read, and the constant that attention "
        f"adds cannot be told from it. {top} of {spec.outputs} numbers follows. Answers at endless query tokens leave "
        f"{digits} of what attention writes in {spec.dtype}.{order}",
        "Calling the model gives what attention adds to the last token, up to that constant, before the readout: NOT "
        "the answers of the target.",
    )


def far_scene(far: Infinity, values: Values, eps: float, longest: float) -> Asking[FarScene]:
    """Attention of values and eps found, without its constant, which no context shows."""
    M, V = values.P.sum(axis=0), np.vstack(list(values.V))
    Vt, d, r = np.linalg.svd(V)[2], far.dim, len(V)
    written, empty = yield from settle("tokens that write", Vt[:r], Vt[r:])
    noise = 2 * far.noise
    return FarScene(d, eps, M, np.zeros(d), False, noise, "float64", written, empty, longest=longest, far=far)


def find_spans(quiet: Quiet, tables: list[Table]) -> Asking[Spans]:
    """New tokens until P_h x stops growing, before H + 3 cells each; fairly well known.

    Tokens are at right angles to the query tokens of the rough maps, which are compared with them.
    """
    far, free = quiet.far, np.linalg.svd(np.stack([rough.q for rough in quiet.rough]))[2][2:]
    X = far.radius * orthonormal(quiet.rng, len(free)) @ free
    columns: list[Array] = []
    for x in X:
        new, miss = yield from read_everywhere(far, tables, x, "fair")
        if columns:
            O = np.stack(columns, axis=2)
            inside = [np.linalg.lstsq(o, p, rcond=None)[0] for o, p in zip(O, new, strict=True)]
            off = [np.linalg.norm(o @ z - p) / np.linalg.norm(p) for o, z, p in zip(O, inside, new, strict=True)]
            if max(off) < BLOCK.written:
                return Spans(X[: len(columns)], O, sharing(np.array(inside), 1e-2), miss)
        columns.append(new)
        if len(new) * len(columns) > 4 * far.dim:
            break
    raise ModelMismatch("what heads write grows with every token: more than attention stands before the network.")


def read_spans(quiet: Quiet, tables: list[Table], spans: Spans, fits: Fits) -> Asking[Spans]:
    """What heads write of s tokens made for it: values at right angles in every group, some weight in every head."""
    (X,) = yield from settle("telling tokens", quiet.far.on_sphere(_telling(quiet, spans, fits)))
    found = []
    for x in X:
        found.append((yield from read_everywhere(quiet.far, tables, x, "full")))
    O = np.stack([columns for columns, _ in found], axis=2)
    return Spans(X, O, spans.group, max(miss for _, miss in found))


def _telling(quiet: Quiet, spans: Spans, fits: Fits) -> Array:
    """s tokens (s, d) on the sphere with prescribed values, and scores as far as these are linear in the token."""
    far, rng, s, d = quiet.far, quiet.rng, spans.width, quiet.far.dim
    V = np.vstack([np.linalg.qr(part.T)[0].T for part in fits.V.reshape(-1, s, d)])
    wanted = np.vstack([np.linalg.qr(rng.standard_normal((s, s)))[0] for _ in range(spans.groups)])
    whole = np.vstack([V, fits.scores[:, :-1]])
    inverse = np.linalg.pinv(whole)
    written = inverse[:, : len(V)] @ wanted
    level = (inverse[:, len(V) :] @ (BLOCK.score_of_shown_tokens - fits.scores[:, -1]))[:, None]
    length = max(float(np.linalg.norm(level)), 1e-300)
    level = level * min(1.0, 0.5 * BLOCK.prescribed_length * far.radius / length)
    room = np.sqrt((BLOCK.prescribed_length * far.radius) ** 2 - np.linalg.norm(level) ** 2)
    written *= 0.8 * room / np.linalg.norm(written, axis=0).max()
    part = (written + level).T
    free = np.linalg.svd(whole)[2][len(whole) :]
    rest = rng.standard_normal((s, len(free))) @ free
    size = np.sqrt(np.maximum(far.radius**2 - (part**2).sum(axis=1), 0)) / np.linalg.norm(rest, axis=1)
    return np.asarray(part + rest * size[:, None])


def values_of(spans: Spans, fits: Fits) -> Values:
    """With orthonormal rows of V."""
    O, V = spans.O.copy(), fits.V.reshape(spans.groups, spans.width, -1).copy()
    for g in range(len(V)):
        q, r = np.linalg.qr(V[g].T)
        V[g] = q.T
        O[spans.group == g] = O[spans.group == g] @ r.T
    return Values(O, V, spans.group, max(spans.misfit, fits.misfit))


def find_eps(far: Infinity, table: Table, spans: Spans) -> Asking[float]:
    """eps from how a token fades as it is shrunk: its share of what it wrote on the sphere is s / sqrt(s^2 + eps).

    Each tells how far to shrink the next one.
    """
    chosen, whole = choose(table, table.heads + BLOCK.cells_per_reading), far.visible(table.q) @ spans.O[:, :, 0].T
    unit, k, guess = spans.X[0], -9, 0.0
    for _ in range(CORE.repairs):
        size = 2.0**k
        found = yield from read_columns(far, chosen, size * unit, "pilot")
        share = float((found.columns * whole).sum() / (whole * whole).sum())
        if 0.3 < share < 0.8:
            return size**2 * (1 - share**2) / share**2
        if not 0 < share < 1.001:
            break
        guess = size**2 * (1 - share**2) / share**2 if share < 0.9999 else size**2 * 1e-4
        k = int(np.floor(np.log2(0.7 * np.sqrt(max(guess, 1e-300)))))
    raise DomainError(
        f"the RMSNorm's eps (about {guess:.1g}) does not show: tokens cannot be brought inside its sphere, which this "
        "learner needs. RMSNorms with eps of 1e-12 and more are served."
    )
