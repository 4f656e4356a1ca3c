"""Token access: a softmax head over a finite vocabulary, from sequences of ids whose embeddings are unknown.

Targets with positions, asked in the one arrangement [key, query]: what the last token is worth in its place.

Theory: docs/theory/token-access.md, "Token access", statement.
Theory: docs/theory/token-access.md, "Token access", positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import Code, DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import decimal_error, rounding_unit
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.tokens.constants import TOKEN_HEAD
from unsoftmax.learners.tokens.cross import read_cross
from unsoftmax.learners.tokens.embedded import embedded
from unsoftmax.learners.tokens.gaps import Reader
from unsoftmax.learners.tokens.report import notes, unreadable
from unsoftmax.models.token_head import TokenHead as Head
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.tokens import one_token
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.embedding import span_of, spanning_tokens
from unsoftmax.solvers.gap_cross import Fit
from unsoftmax.solvers.position_offset import Offset, offset
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class TokenHead:
    """Learn f(ids) = softmax(S[id_i, id_N]) . values[ids]: one query per value, one per entry of a cross of gaps.

    rank        of the scores S; None: found.
    embeddings  (V, d) if they are known: the result is then a head of vectors, W on their span.
    positions   "none": the order of tokens before the last must not matter, which is tested. "fixed": learn the pairs
                [key, query] in this arrangement alone, for targets whose scores depend on positions (values may
                gain a constant in the last one).
    """

    rank: int | None = None
    embeddings: Array | None = field(default=None, compare=False, repr=False)
    positions: Literal["none", "fixed"] = "none"

    accepts = ("ids",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if self.embeddings is not None:
            self._check_embeddings(spec)
        if spec.domain.length_limit < 2:
            raise DomainError(
                "TokenHead needs sequences of two tokens and max_length is 1; alone, a token attends to itself and "
                "scores are invisible."
            )
        n = len(self._asked(spec).allowed)
        phases = {"values": n}
        if self.rank is not None and n >= 4 * self.rank + 4:
            main = theory.token_head_queries(n, self.rank) - n
            ranges = {"pilot and repair": (0, TOKEN_HEAD.most_pilots + main)}
            return Forecast({**phases, "main": main}, ranges=ranges)
        rank = min(TOKEN_HEAD.largest_rank_supposed if self.rank is None else self.rank, n // 2)
        most = min(2 * theory.token_head_queries(n, rank), 2 * n * n) + TOKEN_HEAD.most_pilots
        supposing = f"scores of rank {TOKEN_HEAD.largest_rank_supposed} at most" if self.rank is None else ""
        return Forecast(phases, ranges={"gaps": (n - 1, most)}, supposing=supposing)

    def _asked(self, spec: OracleSpec) -> OracleSpec:
        """The tokens that are asked about: all that are allowed, or enough to span known embeddings."""
        if self.embeddings is None:
            return spec
        E = np.asarray(self.embeddings, dtype=np.float64)
        chosen = spec.allowed[spanning_tokens(E[spec.allowed], CORE.to_spare)]
        others = np.setdiff1d(np.arange(spec.vocabulary or 0), chosen)
        return replace(spec, domain=replace(spec.domain, forbidden=tuple(others.tolist())))

    def _check_embeddings(self, spec: OracleSpec) -> None:
        E = np.asarray(self.embeddings)
        if E.ndim != 2 or len(E) != spec.vocabulary or E.dtype.kind not in "fiu" or not np.isfinite(E).all():
            raise InvalidArgument(
                f"`embeddings` must be finite, of shape ({spec.vocabulary}, d), one row per token id (got {E.shape})."
            )
        if self.positions == "fixed":
            raise InvalidArgument('`embeddings` do not go with positions="fixed"; learn the scores alone.')

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._run(spec, np.random.default_rng(seed))

    def _run(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        asked = self._asked(spec)
        values = yield one_token(asked.allowed)
        reader = yield from self._reader(asked, values, rng)
        fixed = self.positions == "fixed"
        cross = yield from read_cross(reader, self.rank, rng, diagonal=not fixed)
        fit = cross.fit()
        if len(cross.queries) == self.rank and not fixed:
            _explained(reader, fit)
        hidden = unreadable(reader, fit)
        if 2 * (len(reader.ids) - len(hidden)) < len(reader.ids):
            raise NotIdentifiable(
                f"{len(hidden)} of {len(reader.ids)} tokens have scores so far from the others that no allowed "
                "sequence shows the difference; longer sequences (max_length) or less noise would show more."
            )
        head = _model(asked, reader, fit, hidden, 2 if fixed else None)
        said = notes(reader, fit, hidden)
        if self.embeddings is None:
            return Outcome(head, said, (_stated(head),))
        E = np.asarray(self.embeddings, dtype=np.float64)
        if len(hidden) and span_of(E[head.known]) != span_of(E[reader.ids]):
            raise NotIdentifiable(
                f"{len(hidden)} of the {len(reader.ids)} tokens that span the embeddings have scores too far from the "
                "others to be read, and W needs them; learn the scores without embeddings=."
            )
        model, more = embedded(E, head, len(cross.queries))
        return Outcome(model, (*said, *more), (_stated(head),))

    def _reader(self, spec: OracleSpec, values: Array, rng: np.random.Generator) -> Asking[Reader]:
        """Settle what a reading can rely on: noise, room for helpers and copies, that order does not matter."""
        room = 0 if self.positions == "fixed" else int(min(TOKEN_HEAD.most_copies, spec.domain.length_limit - 2))
        size, spread = float(np.abs(values).max()), float(np.ptp(values))
        noise = spec.tolerance + 4 * spec.eps * size
        if spread <= 2 * noise:
            raise NotIdentifiable(
                f"all {len(values)} tokens have the same value within {2 * noise:.2g}, so every sequence has the same "
                "answer and no query shows a score."
            )
        unit, moved, rounded = yield from _pilot(spec.allowed, values, noise, room > 0, rng)
        eps = max(spec.eps, unit)
        noise = max(spec.tolerance + 4 * eps * size, moved, rounded + 4 * eps * size)
        last = values
        if self.positions == "fixed":
            last, error = yield from last_values(spec.allowed, values, noise, rng)
            noise = max(noise, error)
        return Reader(spec.allowed, values, last, noise, eps, max(room, 1), room > 0, rounded)


def _explained(reader: Reader, fit: Fit) -> None:
    """The zero diagonal must follow from the cross; a given rank that is too small shows here."""
    residual, bound = np.abs(fit.diagonal()), fit.bounds(*[np.arange(len(reader.ids))] * 2)
    wrong = np.flatnonzero(residual > 2 * bound + 64 * reader.eps)
    if len(wrong):
        worst = wrong[np.argmax(residual[wrong])]
        raise ModelMismatch(
            f"rank {fit.weights.shape[1] - 1} does not explain the scores: the gap of token {reader.ids[worst]} to "
            f"itself comes out as {residual[worst]:.2g} where 0 is certain; pass a larger rank, or rank=None."
        )


def _pilot(
    ids: Array, values: Array, noise: float, swap: bool, rng: np.random.Generator
) -> Asking[tuple[float, float, float]]:
    """Ask [a, b, j] and [b, a, j] (only [a, j] if not `swap`) for a, b of far values.

    Returns the rounding unit the answers show, the largest difference that order makes and the error of answers with
    few decimals; ModelMismatch if order makes more difference than noise.
    """
    order = np.argsort(values, kind="stable")
    ends = max(1, len(ids) // 8)
    a, b = rng.choice(order[:ends], TOKEN_HEAD.swapped), rng.choice(order[-ends:], TOKEN_HEAD.swapped)
    a[::2], b[1::2] = order[0], order[-1]
    j = rng.integers(len(ids), size=TOKEN_HEAD.swapped)
    there = np.stack([a, b, j] if swap else [a, b], axis=1)
    back = there[:, [1, 0, 2] if swap else [1, 0]]
    y = yield Probes(ids[np.vstack([there, back])], phase="pilot")
    mixed = y[~np.isin(y, values)]
    unit = rounding_unit(mixed) if len(mixed) >= TOKEN_HEAD.swapped // 2 else 0.0
    moved = np.abs(y[: TOKEN_HEAD.swapped] - y[TOKEN_HEAD.swapped :]) if swap else np.zeros(1)
    worst = int(np.argmax(moved))
    rounded = decimal_error(np.concatenate([values, y]))
    allowed = 16 * max(noise, rounded, unit * float(np.abs(values).max())) + 1e-5 * float(np.ptp(values))
    if moved[worst] > allowed:
        some = np.unique(np.concatenate([a, b, j]))
        doubled = yield Probes(ids[np.stack([some, some], axis=1)], phase="pilot")
        chance = float(np.abs(doubled - values[some]).max())
        if moved[worst] / 8 < chance < TOKEN_HEAD.noisy_share * float(np.ptp(values)):
            raise ModelMismatch(
                f"the answers are noisier than declared: a token twice answered up to {chance:.2g} off what it "
                f"answered alone, and the same tokens in another order up to {moved[worst]:.2g} off. Declare the noise "
                f"(tolerance={2 * max(chance, float(moved[worst])):.0e} or what the target promises); if it is exact, "
                "values depend on the position, which no TokenHead has.",
                code=Code.NOISE,
            )
        raise ModelMismatch(
            f"the order of tokens matters: {ids[there[worst]].tolist()} answered {y[worst]:.6g} and "
            f"{ids[back[worst]].tolist()} answered {y[TOKEN_HEAD.swapped + worst]:.6g}. The target uses positions (or "
            "is noisier "
            'than declared); learn it for pairs in one arrangement with TokenHead(positions="fixed").',
            code=Code.ORDER,
        )
    return unit, float(moved[worst]), rounded


def _model(spec: OracleSpec, reader: Reader, fit: Fit, hidden: Array, length: int | None) -> Head:
    """The head over the whole vocabulary; ids never sent or not readable get zeros and are named in the model."""
    V = spec.vocabulary
    assert V is not None
    known = np.setdiff1d(np.arange(len(reader.ids)), hidden)

    def spread_out(part: Array) -> Array:
        whole = np.zeros((V, *part.shape[1:]))
        whole[reader.ids[known]] = part[known]
        return whole

    left, right = fit.errors
    silent = np.setdiff1d(np.arange(V), reader.ids[known])
    return Head(
        (spread_out(fit.weights), spread_out(fit.rows.T)),
        spread_out(reader.values),
        forbidden=silent if len(silent) else None,
        own=None if length is None else np.zeros(V),
        own_values=None if length is None else spread_out(reader.last),
        length=length,
        errors=(spread_out(left), spread_out(right)),
    )


def _stated(head: Head) -> Claim:
    left, right = (part[head.known] for part in head.errors)
    own = np.einsum("jm,jm->j", left, right)
    largest = float((right @ left.max(axis=0) + own).max())
    return Claim(
        "stated errors",
        largest,
        basis="measured",
        theorem="Theorem 4.1 on token pairs",
        statement="every gap is within model.bounds(key, query) to first order, and none is stated worse than this",
    )


def last_values(ids: Array, values: Array, noise: float, rng: np.random.Generator) -> Asking[tuple[Array, float]]:
    """Values (n,) in the last of two positions, given those in the first, and their error; phase "pilot".

    [i, i] answers the value of i if positions do not change values. If they add a constant (embeddings plus positions
    under a linear value map), a block of pairs gives it.
    """
    some = rng.choice(len(ids), min(TOKEN_HEAD.tokens_asked_doubled, len(ids)), replace=False)
    y = yield Probes(ids[np.stack([some, some], axis=1)], phase="pilot")
    moved = np.abs(y - values[some])
    if moved.max() <= 8 * noise:
        return values, 0.0
    m = min(TOKEN_HEAD.block_for_offset, len(ids) // 2)
    order = rng.permutation(len(ids))
    keys, queries = order[:m], order[m : 2 * m]
    pairs = np.stack(np.broadcast_arrays(keys[:, None], queries), axis=-1).reshape(-1, 2)
    answers = yield Probes(ids[pairs], phase="pilot")
    found: Offset | None = offset(answers.reshape(m, m), values[keys], values[queries], noise)
    if found is None:
        worst = int(np.argmax(moved))
        raise ModelMismatch(
            f"values depend on the position: token {ids[some[worst]]} answered {values[some[worst]]:.6g} alone and "
            f"{y[worst]:.6g} after itself, and no constant explains this together with scores of rank below {m - 3}."
        )
    return values + found.c, found.error
