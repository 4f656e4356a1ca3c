"""Attention weights of all heads from one answer, by least squares on what they write; and tokens that read well.

Theory: docs/theory/attention-layer.md, "Layers of language models".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from scipy.linalg import solve_triangular

from unsoftmax.errors import Code, ModelMismatch, NotIdentifiable
from unsoftmax.learners.core.base import Asking
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.rotary.constants import ROTARY
from unsoftmax.learners.rotary.limits import ROUNDED, Limits
from unsoftmax.learners.rotary.scene import Scene
from unsoftmax.learners.rotary.values import Values, raised
from unsoftmax.precision import HALF_DIGITS
from unsoftmax.probes.base import Array
from unsoftmax.solvers.singular import svd


@dataclass(eq=False)
class Reader:
    """Weights by head and slot. `gain` collects, read by read, by how much noise rises to a weight, and to its log.

    `left`, where heads are known roughly: what of an answer their weights leave.
    slopes (H,): what every step of distance takes from a score; sinks (H,): logits of sinks. None where there are none.
    """

    scene: Scene
    values: Values
    gain: list[tuple[float, float]] = field(default_factory=list)
    slopes: Array | None = None
    sinks: Array | None = None
    left: list[float] = field(default_factory=list)

    @property
    def limits(self) -> Limits:
        """What counts as noise in weights like these."""
        return self.scene.limits if self.error < ROTARY.rough_error else ROUNDED

    @property
    def error(self) -> float:
        """Relative error of what heads write: as estimated, or as answers show it where that is rough."""
        return min(self.values.error, ROTARY.shown_error * max(self.left)) if self.left else self.values.error

    @property
    def weight_error(self) -> float:
        """Typical error of the weights read so far, by that of answers and of what heads write."""
        weights = float(np.sqrt(np.mean([weight**2 for weight, _ in self.gain])))
        return max(self.scene.noise, self.error) * weights

    @property
    def absolute(self) -> bool:
        """Whether scores count beside the logits of sinks, and not only against each other."""
        return self.sinks is not None

    def level(self, logs: Array, distances: Array) -> Array:
        """Logs (n, H, m) of weights against the last token's, without what a slope per step of distance takes away."""
        return logs if self.slopes is None else np.asarray(logs + self.slopes[:, None] * distances)

    @property
    def quiet(self) -> bool:
        """Whether query tokens exist that write nothing and still show every key direction."""
        return len(self.scene.empty) >= self.values.width + 2

    @property
    def slots(self) -> int:
        """Tokens whose weights one answer tells for all heads."""
        # Beside them stand the last token and an empty one on either side.
        return int(
            min(self.values.narrow or self.values.width, self.scene.shown // len(self.values.O), self.scene.longest - 3)
        )

    @property
    def near(self) -> int:
        """Tokens in a row, two at least, up to which slopes leave the farthest a weight that is readable."""
        steepest = 0.0 if self.slopes is None else float(self.slopes.max())
        most = -ROTARY.faded * np.log(self.limits.readable)
        return max(2, int(most / steepest)) if steepest * self.slots > most else self.slots

    def before_quiet(self, z: Array, slots: int, phase: str, skipped: int = 0) -> Asking[Array]:
        """Weights (n, H, slots) of the first tokens of z (n, N, d), some `skipped`; all others write nothing."""
        y, seen = yield from self.scene.ask(z, phase)
        known: dict[bytes, Array] = {}
        out = []
        for row, tokens, last in zip(y, seen[:, skipped : skipped + slots], seen[:, -1], strict=True):
            key = tokens.tobytes() + (b"" if self.scene.visible(last) is None else last.tobytes())
            if key not in known:
                known[key] = self._inverse(tokens, last)
            out.append((known[key] @ row).reshape(len(self.values.O), -1))
            self._count(known[key], row, out[-1].min())
            self._compare(tokens, row, out[-1])
        return np.array(out)

    def before_any(self, z: Array, phase: str) -> Asking[tuple[Array, Array, Array]]:
        """Weights (n, H, m) of the tokens before the last, the last one's own (n, H), and z as seen.

        Without sinks weights add up to 1, and the last one's own is the rest; with sinks it is read like the others.
        """
        y, seen = yield from self.scene.ask(z, phase)
        out = []
        if self.sinks is not None:
            for row, tokens in zip(y, seen, strict=True):
                inverse = self._inverse(tokens, tokens[-1])
                out.append((inverse @ row).reshape(len(self.values.O), -1))
                self._count(inverse, row, min(out[-1].min(), (1 - out[-1].sum(axis=1)).min()))
            alpha = np.array(out)
            return alpha[..., :-1], alpha[..., -1], seen
        for row, tokens in zip(y, seen, strict=True):
            moved, above = tokens[:-1] - tokens[-1], row - self.scene.M @ tokens[-1]
            inverse = self._inverse(moved, tokens[-1])
            out.append((inverse @ above).reshape(len(self.values.O), -1))
            self._count(inverse, row, min(out[-1].min(), (1 - out[-1].sum(axis=1)).min()))
            self._compare(moved, above, out[-1])
        alpha = np.array(out)
        return alpha, 1 - alpha.sum(axis=2), seen

    def _inverse(self, tokens: Array, last: Array) -> Array:
        """(H * m, outputs): from an answer above the query token `last` to the weights of m tokens."""
        written, see = self._written(tokens), self.scene.visible(last)
        return _pseudo_inverse(written) if see is None else np.asarray(np.linalg.pinv(see @ written) @ see)

    def _written(self, tokens: Array) -> Array:
        """(outputs, H * m): what every head writes of m tokens."""
        P = self.values.O @ (self.values.V @ tokens.T)[self.values.group]
        return P.transpose(1, 0, 2).reshape(P.shape[1], -1)

    def _compare(self, tokens: Array, row: Array, weights: Array) -> None:
        """What of an answer (outputs,) the weights (H, m) of tokens (m, d) leave, where heads are known roughly."""
        free = 1 - weights.size / len(row)
        if self.values.error > ROTARY.rough_error and free > 0:
            rest = row - self._written(tokens) @ weights.ravel()
            self.left.append(float(np.linalg.norm(rest) / np.linalg.norm(row) / np.sqrt(free)))

    def _count(self, inverse: Array, row: Array, least: float) -> None:
        size = float(np.linalg.norm(inverse) / np.sqrt(len(inverse)) * np.linalg.norm(row))
        self.gain.append((size, size / max(float(least), 1e-12)))

    def blocks(self, count: int, m: int, rng: np.random.Generator) -> list[Array]:
        """Blocks (m, d) like `block` whose tokens, with a constant beside them, are a well-conditioned basis together.

        What the tokens do not write is chosen orthogonal, column by column, to what they write.
        """
        scene, n = self.scene, count * m
        v = np.vstack([dual_values(self.values, m, ROTARY.written_part * scene.radius, rng) for _ in range(count)])
        free = n - len(scene.written) - 1
        if not 0 < len(scene.empty) <= free:
            return [self.block(m, rng) for _ in range(count)]
        known = np.column_stack([v @ scene.written.T, np.ones(n)])
        rest = np.linalg.qr(np.column_stack([known, rng.standard_normal((n, len(scene.empty)))]))[0]
        part = rest[:, known.shape[1] :] @ scene.empty
        room = np.maximum((CORE.edge * scene.radius) ** 2 - (v * v).sum(axis=1), 0)
        # Rows of orthonormal columns have about one length; the longest one decides.
        part *= float(np.sqrt(room / (part * part).sum(axis=1)).min())
        return list((v + part).reshape(count, m, -1))

    def block(self, m: int, rng: np.random.Generator) -> Array:
        """m tokens (m, d) whose values are orthogonal under every group: all heads read all slots equally well."""
        v = dual_values(self.values, m, ROTARY.written_part * self.scene.radius, rng)
        if len(self.scene.empty) == 0:
            return v * (CORE.edge / ROTARY.written_part)
        free = rng.standard_normal((m, len(self.scene.empty))) @ self.scene.empty
        room = np.maximum((CORE.edge * self.scene.radius) ** 2 - (v * v).sum(axis=1), 0)
        return np.asarray(v + free * (np.sqrt(room) / np.linalg.norm(free, axis=1))[:, None])


def _pseudo_inverse(A: Array) -> Array:
    """Of A (n, k), k <= n: by QR, a fifth of the time of singular values, unless columns nearly depend."""
    Q, R = np.linalg.qr(A)
    sizes = np.abs(np.diag(R))
    if A.shape[1] > A.shape[0] or sizes.min() <= HALF_DIGITS * sizes.max():
        return np.asarray(np.linalg.pinv(A))
    return np.asarray(solve_triangular(R, Q.T))


_Told = TypeVar("_Told")


def by_these(reader: Reader, steps: Asking[_Told]) -> Asking[_Told]:
    """What steps tell by the weights of these heads. Where rounding hides what heads write, a contradiction speaks of
    the rounding and not against the class."""
    try:
        return (yield from steps)
    except (ModelMismatch, NotIdentifiable) as refusal:
        hidden = _hidden(reader) if isinstance(refusal, ModelMismatch) or refusal.code is Code.NOISE else None
        if hidden is None:
            raise
        raise NotIdentifiable(
            f"answers rounded to {reader.scene.noise:.1g} do not show what each head writes: {hidden}. Ask for answers "
            "in float64.",
            code=Code.NOISE,
        ) from refusal


def _hidden(reader: Reader) -> str | None:
    """How heads that were read from rounded answers contradict single tokens, or how little is known of them; None
    where they are known."""
    scene, values = reader.scene, reader.values
    groups, s = values.V.shape[:2]
    if scene.exact:
        return None
    if groups * s > len(scene.written):
        return (
            f"{len(values.O)} heads with values of {groups} kinds and {s} dimensions each seem to be there, where "
            f"single tokens write {len(scene.written)} dimensions in all"
        )
    split = values.error * raised(np.hstack(list(values.O)))
    return f"splitting an answer among them leaves {split:.1g} of it open" if split > ROTARY.open_split else None


def unread(reader: Reader, least: float, where: str) -> ModelMismatch | NotIdentifiable:
    """Why weights were read that are none, the least of them or of what they leave: heads that are known too roughly,
    or that are none."""
    open_by = max(reader.scene.noise, reader.error) * max(weight for weight, _ in reader.gain[-3:])
    if least > -open_by and reader.error > ROTARY.rough_error:
        return NotIdentifiable(
            f"errors of what heads write leave attention weights open (by {open_by:.1g}): small ones cannot be read "
            f"{where}.",
            code=Code.NOISE,
        )
    return ModelMismatch(
        f"attention weights outside (0, 1) were read {where}: the heads found do not explain the answers."
    )


def dual_values(values: Values, m: int, size: float, rng: np.random.Generator) -> Array:
    """(m, d) tokens with V_g v_i orthogonal in every group g, the longest of them `size` long."""
    s = values.width
    wanted = np.vstack([np.linalg.qr(rng.standard_normal((s, s)))[0][:, :m] for _ in values.V])
    U, sizes, Vt = svd(np.vstack(list(values.V)), full_matrices=False)
    # Directions that the groups together hardly tell apart would be all that is left of every token.
    softened = sizes / (sizes**2 + (ROTARY.soft_values * np.median(sizes)) ** 2)
    v = ((U.T @ wanted) * softened[:, None]).T @ Vt
    return np.asarray(v * (size / np.linalg.norm(v, axis=1).max()))
