"""A head with another kernel than the exponential, known or not: one query per unknown and a table.

Weights kappa(s) instead of exp(s), normalised or not: the probe holds one score at 0 and reads another (docs/theory).

Why no kernel of one score explains a target: a few more sequences that name what it is.

A weight that is a function of the score x'Wq alone is the same for [c x ; q / c], whatever c is. One head, whatever its
weights, answers nothing to a token across v beside a query token without values; several heads do.

Theory: docs/theory/kernels.md, "Other kernels than the exponential", statement.
Theory: docs/theory/kernels.md, "Other kernels than the exponential", refusals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch, NotIdentifiable
from unsoftmax.inversion import rounding_unit
from unsoftmax.learners.core.acceptance import SCALARS, check
from unsoftmax.learners.core.base import RELATIVE_ERROR, Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.core.constants import CORE
from unsoftmax.learners.core.readable import SATURATED, Repair, Steps, find_scale, until_readable
from unsoftmax.learners.kernel.constants import KERNEL
from unsoftmax.learners.kernel.degree import TABLE
from unsoftmax.learners.kernel.first_look import zero_at_zero
from unsoftmax.learners.kernel.kernels import Known, tabulate
from unsoftmax.learners.kernel.powers import LONGEST, learn, require_length
from unsoftmax.learners.kernel.reading import Reader, start
from unsoftmax.models.kernel_head import KernelHead as Head
from unsoftmax.models.kernels import LEARNED, power_of
from unsoftmax.precision import EPS
from unsoftmax.probes.base import Array, Probes
from unsoftmax.probes.bases import householder_basis
from unsoftmax.probes.sphere import sphere
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.kernel_match import inverse
from unsoftmax.spec import OracleSpec

_BESIDE = "values, table and sizes"
"""What is asked beside the pairs, for an unknown kernel: which of it depends on the kernel."""

_SIZES = 2.0 ** np.arange(-9.0, 2.0, 2.0)
"""Scores over |W| that are tried, up to 2: of heads with |W| up to 300 none leaves the numbers of float64."""


@dataclass(frozen=True)
class KernelHead:
    """Learn W, v and the kernel kappa of f(X) = sum kappa(x_i'W x_N) (x_i.v), divided by sum kappa or not.

    kernel  a name of the catalogue (exp, softplus, 1 + elu, sigmoid, softcap; linear, quadratic, relu, relu^2), or
            None: found from a table of 48 queries, named if the catalogue has it, kept as a table if it is smooth and
            monotone. Powers of the score hide the scale of W, and |W| = 1 then.
    """

    kernel: str | None = None

    accepts = SCALARS

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        power = None if self.kernel is None else power_of(self.kernel)
        if self.kernel is not None and power is None and self.kernel not in LEARNED:
            names = ", ".join((*LEARNED, "linear", "quadratic", "relu", "relu^2"))
            raise InvalidArgument(f"`kernel` must be one of {names} or None (got {self.kernel!r}).")
        if spec.dtype == "float16":
            raise DomainError(
                "KernelHead needs tokens from 2^-44 to 2^26, which float16 does not hold; ask in float32."
            )
        require_length(spec, 3 if power is None else LONGEST)
        d = spec.dim
        table = d + KERNEL.table_points + 2
        pilot = 2 + 2 + CORE.entries_for_scale
        repairs = CORE.entries_for_scale * CORE.repairs + 64 + d * d // 10
        if power is None and self.kernel is not None:
            return Forecast(
                {"values": d, "table": KERNEL.table_points + 2, "main": d * d},
                KERNEL.most_looks + 2 + repairs,
                least_extra=pilot,
                model=Head,
            )
        # Plain sums need two queries for the size of a row, normalised weights up to 2 d for v and one for a size.
        powers = TABLE + 3 * d
        least, most = (powers - d - 2, powers) if power else (min(powers - d - 2, table), max(powers, table))
        # The square hides signs: every direction is asked once more.
        most += d * d if power is None or power[1] > 0 else 0
        ranges = {_BESIDE: (least, most)}
        return Forecast(
            {"main": d * d},
            KERNEL.most_looks + 2 + repairs,
            least_extra=KERNEL.most_looks + 2,
            ranges=ranges,
            model=Head,
        )

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._run(spec, seed)

    def _run(self, spec: OracleSpec, seed: int) -> Program:
        """The head, or a refusal that says what the target is where a few more sequences show it."""
        rng = np.random.default_rng(seed)
        if (yield from zero_at_zero(spec, rng)):
            require_length(spec, LONGEST)
            return (yield from learn(spec, rng, self.kernel))
        try:
            return (yield from self._positive(spec, rng))
        except (ModelMismatch, NotIdentifiable) as refused:
            what = yield from named(spec, np.random.default_rng([seed, 1]))
            if what is None:
                raise
            raise ModelMismatch(f"the target is outside the class KernelHead learns: {what} ({refused})") from refused

    def _positive(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        """Kernels that are positive at 0."""
        if self.kernel is not None and power_of(self.kernel) is not None:
            raise ModelMismatch(f"the kernel is not {self.kernel!r}: it is not 0 at 0.")
        reader = yield from start(spec)
        d = spec.dim
        Z = householder_basis(reader.v)
        B = np.linalg.qr(rng.standard_normal((d, d)))[0]
        size = yield from _size(reader, Z, B, rng)
        A = size * Z
        a, b = np.repeat(A, d, axis=0), np.tile(B, (d, 1))
        g, error = yield from reader.ask(a, b, "main")
        line = int(np.nanargmax(np.where(np.isfinite(g), np.abs(g), -1.0)))
        known = yield from tabulate(reader, a[line], b[line], self.kernel)
        if known.kernel.table is not None and (yield from named(spec, rng)) is not None:
            # Several heads make a table too, which is said with the reason.
            raise ModelMismatch("the kernel is in no catalogue, and what its table shows is no function of one score.")
        scale, off = np.ones(d * d), np.empty(d * d)

        def ask(index: Array, shrink: Array, phase: str) -> Asking[Array]:
            answers = g, error
            if phase == "repair":
                answers = yield from reader.ask(a[index] * shrink[:, None], b[index], phase)
            t, off[index] = _scores(known, *answers)
            return t

        t, left = yield from until_readable(ask, scale, Repair(math.inf, far=1 / 8, tries=5))
        if len(left):
            raise NotIdentifiable(f"{len(left)} of {d * d} scores cannot be read: the kernel is flat there.")
        W = _solved(A, B, t, scale, reader, known)
        error_of_W = CORE.stated_over_rounding * float(np.linalg.norm(off / scale)) / size
        bound = error_of_W / max(float(np.linalg.norm(W)), 1e-300)
        if bound >= 1:
            raise ModelMismatch(f"at this noise the error of W may be {bound:.2g} of it: nothing is known.")
        claim = Claim(RELATIVE_ERROR, bound, statement="of W, from the rounding of answers and the slope of the kernel")
        v = reader.v if reader.normalised else reader.v / float(known.kernel(np.zeros(())))
        head = Head(W, v, known.kernel, reader.normalised)
        return Outcome(head, _notes(known, reader), allows=Allowance(claim))


def _size(reader: Reader, Z: Array, B: Array, rng: np.random.Generator) -> Asking[float]:
    """Length of the first token's part at which entries of l are typical, for |W| from 1e-28 to 1e28."""
    d = len(Z)
    pairs = rng.integers(0, d, (2, CORE.entries_for_scale))
    mixed: tuple[float, Array, Array] | None = None

    def look(size: float) -> Asking[float]:
        nonlocal mixed
        g, error = yield from reader.ask(size * Z[pairs[0]], B[pairs[1]], "pilot")
        nothing, loud = _told(g, error)
        if mixed is None and nothing.any() and loud.any():
            mixed = size, nothing, loud
        seen = np.abs(g[np.isfinite(g)])
        return (
            float(np.median(seen)) / KERNEL.typical_log_kernel if len(seen) > CORE.entries_for_scale // 2 else SATURATED
        )

    found = yield from find_scale(look, 1.0, Steps(0.3, 1.5, 2.0**-8, 2.0**8, looks=CORE.repairs))
    if mixed is not None:
        size, nothing, loud = mixed
        # Entries of W may be 0: what is nothing one way and loud the other way round speaks of the kernel.
        nothing_back, loud_back = _told(*(yield from reader.ask(-size * Z[pairs[0]], B[pairs[1]], "pilot")))
        one_way = (nothing & loud_back) | (loud & nothing_back)
        if int(one_way.sum()) >= CORE.entries_for_scale // 2 and not (loud & loud_back).any():
            raise ModelMismatch(
                "the kernel is flat on one side of 0: scores of one sign leave no trace in the answers, and turned "
                "round they do; a weight does not tell its score."
            )
    if found.size == SATURATED:
        raise NotIdentifiable(
            "no token length was found at which most scores show: W is 0, of a size beyond 1e28, or the kernel is flat "
            "for most of them."
        )
    return found.scale


def _told(g: Array, error: Array) -> tuple[Array, Array]:
    """Which readings are nothing beside their error, and which are beyond doubt."""
    return np.isfinite(g) & (np.abs(g) <= error), np.isfinite(g) & (
        np.abs(g) > np.maximum(KERNEL.loud_log_kernel, error)
    )


def _scores(known: Known, g: Array, error: Array) -> tuple[Array, Array]:
    """t with log kappa(t) / kappa(0) = g, NaN where the kernel is too flat to tell, and its error."""
    reach = known.reach if math.isfinite(known.reach) else KERNEL.largest_score
    t, slope = inverse(known.kernel.log_ratio, np.where(np.isfinite(g), g, 0.0), -reach, reach)
    usable = np.isfinite(g) & (slope > KERNEL.flat_slope) & (np.abs(t) < 0.98 * reach)
    return np.where(usable, t, np.nan), np.where(usable, error / np.maximum(slope, KERNEL.flat_slope), np.inf)


def _solved(A: Array, B: Array, t: Array, scale: Array, reader: Reader, known: Known) -> Array:
    """W from scores t = scale a'Wb (d^2,), the score of the second token taken into account."""
    d = len(A)
    reach = known.reach if math.isfinite(known.reach) else KERNEL.largest_score
    back = np.linalg.inv(B).T
    W = np.linalg.solve(A, (t / scale).reshape(d, d)) @ back
    for _ in range(KERNEL.corrections):
        own = np.tile(reader.e**2 * np.einsum("jd,de,je->j", B, W, B), d)
        if float(np.abs(own).max()) < np.finfo(np.float64).eps * float(np.abs(t).max()):
            break
        # What was read is l(t + own) - l(own).
        read = known.kernel.log_ratio(t) + known.kernel.log_ratio(own)
        shifted, _ = inverse(known.kernel.log_ratio, read, -reach, reach)
        W = np.linalg.solve(A, ((shifted - own) / scale).reshape(d, d)) @ back
    return np.asarray(W)


def _notes(known: Known, reader: Reader) -> tuple[str, ...]:
    kind = "normalised" if reader.normalised else "a plain sum"
    if known.kernel.name == "tabulated":
        words = "in no catalogue and kept as a table; its scale is fixed by a slope of 1 at 0"
        return (f"the kernel is {words}; weights are {kind}.",)
    return (f"the kernel is {known.kernel} (misfit {known.misfit:.1g}); weights are {kind}.",)


def named(spec: OracleSpec, rng: np.random.Generator) -> Asking[str | None]:
    """What the target is, in words; None if these sequences do not show it."""
    d = spec.dim
    x, q = sphere(rng, (2, d))
    longest = 0.1 * spec.domain.norm_limit / KERNEL.stretches[-1]
    far, near = (min(length, longest) for length in KERNEL.tokens_over_query)
    # Tokens without a score, EPS of |W|, show v in front of equal weights.
    v = (yield Probes(_pairs(np.eye(d) * far, EPS / far * q), phase="outside")) / far
    size = float(np.linalg.norm(v))
    allowed = max(KERNEL.answer_off_class, CORE.felt * max(rounding_unit(v * far), spec.eps)) + spec.tolerance / max(
        near * size, 1e-300
    )
    if size * near <= 1e3 * spec.tolerance:
        return None
    stretch = np.repeat(KERNEL.stretches, len(_SIZES))[:, None]
    sizes = np.tile(_SIZES, len(KERNEL.stretches))[:, None]
    for length in (far, near):
        y = yield Probes(_pairs(stretch * length * x, sizes / (stretch * length) * q), phase="outside")
        y = (y / stretch[:, 0]).reshape(len(KERNEL.stretches), -1) / (length * size)
        both = yield Probes(_pairs(np.array([[length], [-length]]) * x, EPS / length * q), phase="outside")
        off = np.abs(y[1:] - y[0]) - 2 * _SIZES / length**2
        if float(off.max()) > allowed or abs(float(both.sum())) > allowed * length * size:
            return "the kernel depends on the token beyond its score x'Wq, or something is added to the head"
    across = sphere(rng, (d,))
    across -= (across @ v) * v / size**2
    across *= far / max(float(np.linalg.norm(across)), 1e-300)
    y = yield Probes(_pairs(across, _SIZES[:, None] / far * q), phase="outside")
    if d > 1 and float(np.abs(y).max()) > allowed * far * size:
        return "there are several heads, with a kernel each or one: tokens across the sum of their values are answered"
    return None


def _pairs(x: Array, q: Array) -> Array:
    """Sequences [x ; q] (n, 2, d) of rows, one of them for all where it is alone."""
    return np.stack(np.broadcast_arrays(x, q), axis=1)
