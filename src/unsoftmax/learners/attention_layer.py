"""A whole attention layer from vector answers: every head's W, c and P, and what stands around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unsoftmax.errors import DomainError, InvalidArgument, ModelMismatch
from unsoftmax.learners.base import RELATIVE_ERROR, Asking, Forecast, Outcome, Program
from unsoftmax.learners.layer.keys import Keys, read_keys
from unsoftmax.learners.layer.one_row import Affine, read_affine
from unsoftmax.learners.layer.polish import dual_picks
from unsoftmax.learners.layer.presets import PRESETS, Preset, preset_named
from unsoftmax.learners.layer.ranges import Heads, Shared, read_ranges, read_values
from unsoftmax.learners.layer.scan import Picks, scan
from unsoftmax.learners.layer.scores import Reader, Scales, find_scales
from unsoftmax.models.attention_layer import AttentionLayer as Layer
from unsoftmax.probes.around import orthonormal
from unsoftmax.probes.base import Array
from unsoftmax.result import Claim
from unsoftmax.spec import OracleSpec

_SHORTEST = 33
_RESCANS = 6
_SLACK = 30.0


@dataclass(frozen=True)
class AttentionLayer:
    """Learn y(X) = constant + sum_h P_h sum_i softmax_i(x_i . (W_h x_N + c_h)) x_i [+ x_N], with a LayerNorm or none.

    H, the ranks, the biases, the residual and the norm are found. preset: "lean" stays near the unknowns, "robust"
    spends about twice as much on conditioning. norm: "auto" looks, or None, "pre", "post".
    """

    preset: Literal["lean", "balanced", "robust"] = "balanced"
    norm: Literal["auto", "pre", "post"] | None = "auto"

    def forecast(self, spec: OracleSpec) -> Forecast:
        preset_named(self.preset)
        if self.norm not in ("auto", None, "pre", "post"):
            raise InvalidArgument(f"`norm` must be 'auto', None, 'pre' or 'post' (got {self.norm!r}).")
        if spec.outputs is None or spec.kind == "membership" or spec.vocabulary is not None:
            raise InvalidArgument(
                "AttentionLayer learns from vectors: declare outputs= on the oracle; use MultiHead or SingleHead for "
                "one real number per sequence, Membership for labels, TokenHead for token ids."
            )
        if spec.dtype == "float16":
            raise InvalidArgument("AttentionLayer needs the digits of float32 at least (got float16).")
        if spec.domain.length_limit < _SHORTEST:
            raise DomainError(
                f"AttentionLayer needs sequences of {_SHORTEST} tokens for heads to choose among and max_length is "
                f"{spec.domain.max_length}."
            )
        return Forecast({"values": spec.dim + 1}, extra=None, tokens_per_query=_SHORTEST)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return _plain(spec, preset_named(self.preset), np.random.default_rng(seed))


def _plain(spec: OracleSpec, preset: Preset, rng: np.random.Generator) -> Program:
    affine = yield from read_affine(spec, rng)
    coarse = PRESETS["lean"] if preset.polish else preset
    heads, picks = yield from _told_apart(affine.M, affine.noise, coarse, spec, rng)
    reader = Reader(heads, affine.of, affine.noise)
    units = orthonormal(rng, spec.dim, min(preset.tokens(heads.slots), 16))
    scales = yield from find_scales(reader, units, rng, spec.domain.norm_limit)
    if preset.polish:
        heads = yield from _polished(reader, scales, picks, affine, preset, spec, rng)
        reader = Reader(heads, affine.of, affine.noise)
    keys = yield from read_keys(reader, scales, preset, spec, rng)
    model = assembled(keys, heads, affine.constant, residual=picks.residual).astype(spec.dtype)
    return Outcome(model, notes=(_found(heads, picks),), claims=(precision_claim(reader, keys),))


def _told_apart(
    M: Array, noise: float, preset: Preset, spec: OracleSpec, rng: np.random.Generator
) -> Asking[tuple[Heads, Picks]]:
    """What every head writes; scans again, expecting one head more, whenever two heads shared a token."""
    least, shared_at = 1, 0
    for _ in range(_RESCANS):
        picks = yield from scan(spec, noise, least, preset.scans, rng)
        sums = M - np.eye(spec.dim) if picks.residual else M
        try:
            ranges = yield from read_ranges(picks, noise, preset, spec, rng, unequal=picks.heads < least)
            heads = yield from read_values(ranges, sums, picks, noise, preset, spec, rng)
        except Shared:
            # Once is chance; the same number of heads twice means that one more is to be expected.
            least = picks.heads + (picks.heads == shared_at)
            shared_at = picks.heads
            continue
        return heads, picks
    raise ModelMismatch(
        f"in {_RESCANS} scans two heads always attended to the same token: at least {least} heads, of which two have "
        "the same scores or one has none. They cannot be told apart by hard attention."
    )


def _polished(
    reader: Reader,
    scales: Scales,
    picks: Picks,
    affine: Affine,
    preset: Preset,
    spec: OracleSpec,
    rng: np.random.Generator,
) -> Asking[Heads]:
    """The heads' ranges and value maps once more, at tokens with wider margins."""
    wide = yield from dual_picks(reader, scales, picks, preset, spec, rng)
    sums = affine.M - np.eye(spec.dim) if picks.residual else affine.M
    try:
        ranges = yield from read_ranges(wide, affine.noise, preset, spec, rng)
        return (yield from read_values(ranges, sums, wide, affine.noise, preset, spec, rng))
    except Shared:
        return reader.heads


def assembled(keys: Keys, heads: Heads, constant: Array, **rest: object) -> Layer:
    """The model; factors of unequal rank are padded with zeros."""
    r, s = max(len(k) for k in keys.K), max(len(z) for z in heads.Z)
    K, Q = (np.stack([_padded(x, r) for x in part]) for part in (keys.K, keys.Q))
    O = np.stack([_padded(o.T, s).T for o in heads.O])
    V = np.stack([_padded(z, s) for z in heads.Z])
    return Layer(K, Q, np.stack(keys.c), O, V, constant, **rest)  # type: ignore[arg-type]


def precision_claim(reader: Reader, keys: Keys) -> Claim:
    """What the noise of the answers leaves in the model, from the conditioning of every read."""
    bound = min(_SLACK * (reader.worst * keys.gain + reader.heads.error), 0.05)
    return Claim(RELATIVE_ERROR, bound, statement="from the noise of the answers and the conditioning of the probes")


def _padded(rows: Array, n: int) -> Array:
    return np.vstack([rows, np.zeros((n - len(rows), rows.shape[1]))])


def _found(heads: Heads, picks: Picks) -> str:
    ranks = sorted({o.shape[1] for o in heads.O})
    kind = "with" if picks.residual else "without"
    return f"{len(heads.O)} heads, rank of P_h {', '.join(map(str, ranks))}, {kind} a residual."
