"""The output layer of a language model: hidden width and unembedding, from the logits of random prompts.

Logits of many prompts span as many dimensions as the hidden states have (arXiv 2403.06634, 2403.09539).

Theory: docs/theory/output-layer.md, "The output layer", statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unsoftmax import theory
from unsoftmax.errors import InvalidArgument, ModelMismatch
from unsoftmax.learners.core.acceptance import check
from unsoftmax.learners.core.base import Allowance, Asking, Forecast, Outcome, Program
from unsoftmax.learners.output.constants import OUTPUT
from unsoftmax.learners.output.reading import Table, centre
from unsoftmax.learners.output.width import MOST, ROW_SPACE, Width, from_tops, grow
from unsoftmax.models.output_layer import OutputLayer as Layer
from unsoftmax.probes.base import Array
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.ellipsoid import Ellipsoid, fit_ellipsoid
from unsoftmax.solvers.softcap import uncapped
from unsoftmax.spec import OracleSpec


@dataclass(frozen=True)
class OutputLayer:
    """Learn the width d of the hidden states and the row space (d, V) of the unembedding: at most d + 31 prompts.

    gauge  "linear": the unembedding up to an invertible matrix. "rotation": behind a final norm hidden states lie on
           an ellipsoid; its d(d+1)/2 + d unknowns, one prompt each and one in eight more, leave only a rotation.
    """

    gauge: Literal["linear", "rotation"] = "linear"

    accepts = ("logits",)

    def forecast(self, spec: OracleSpec) -> Forecast:
        check(self, spec)
        if self.gauge == "rotation" and spec.shows in ("chosen", "top"):
            raise InvalidArgument(
                f'gauge="rotation" needs all logits or log-probabilities of a prompt in one answer (got shows='
                f'{spec.shows!r}); learn with gauge="linear".'
            )
        if spec.shows == "top":
            return Forecast(ranges={"main": (OUTPUT.first_tokens, MOST)}, model=Layer)
        V = spec.vocabulary or 0
        widest = min(V, OUTPUT.widest_supposed)
        per_prompt = 1
        if spec.shows == "chosen":
            per_prompt = theory.output_layer_requests_per_prompt(V, spec.outputs or 2)
        # A cap is looked for whenever the prompts have doubled: a capped model takes up to twice as many.
        ranges = {
            "main": (2 * OUTPUT.prompts_of_noise * per_prompt, 2 * (widest + 2 * OUTPUT.prompts_of_noise) * per_prompt)
        }
        if self.gauge == "rotation":
            ranges["ellipsoid"] = (0, theory.output_layer_rotation_requests(widest))
        supposing = (
            "" if OUTPUT.widest_supposed >= V else f"hidden states of at most {OUTPUT.widest_supposed} dimensions"
        )
        return Forecast(ranges=ranges, supposing=supposing, model=Layer)

    def program(self, spec: OracleSpec, seed: int) -> Program:
        self.forecast(spec)
        return self._run(spec, np.random.default_rng(seed))

    def _run(self, spec: OracleSpec, rng: np.random.Generator) -> Program:
        tokens: Array | None = None
        if spec.shows == "top":
            width, tokens = yield from from_tops(spec, rng)
        else:
            table = Table(spec, rng)
            width = yield from grow(table)
            width = replace(width, rows=width.rows[:, np.argsort(table.tokens, kind="stable")])
        _, s, Vt = np.linalg.svd(width.rows, full_matrices=False)
        layer = Layer(Vt[: width.found.rank], width.centred, width.softcap, s, tokens=tokens)
        allows = Allowance(row_space=_angle(width))
        if self.gauge == "linear":
            return Outcome(layer, _notes(width), allows=allows)
        ellipsoid = yield from self._ellipsoid(layer, width, table)
        layer = replace(layer, metric=ellipsoid.metric, centre=ellipsoid.centre)
        return Outcome(layer, (*_notes(width), *_shape(ellipsoid, layer.width)), allows=allows)

    def _ellipsoid(self, layer: Layer, width: Width, table: Table) -> Asking[Ellipsoid]:
        """More prompts, of which only coordinates are kept, and the ellipsoid through them."""
        needed = theory.output_layer_rotation_requests(layer.width) - len(width.rows)
        z = [layer.coordinates(width.rows)]
        while needed > 0:
            count = min(OUTPUT.prompts_of_a_round, needed)
            table.rows, table.prompts = table.rows[:0], table.prompts[:0]
            yield from table.more_rows(count, "ellipsoid")
            rows = centre(table.rows) if layer.centred else table.rows
            z.append(layer.coordinates(rows if layer.softcap is None else uncapped(rows, layer.softcap)))
            needed -= count
        found = fit_ellipsoid(np.concatenate(z), width.found.noise)
        if not (found.gap <= OUTPUT.off_ellipsoid and np.linalg.eigvalsh(found.metric)[-found.dimension] > 0):
            raise ModelMismatch(
                f"the hidden states lie on no ellipsoid (off by {found.gap:.2g} of 1): no norm stands before the "
                'unembedding; the row space is known, learn it with gauge="linear".'
            )
        return found


def _angle(width: Width) -> Claim:
    return Claim(
        ROW_SPACE,
        min(1.0, width.found.angle),
        None,
        "measured",
        None,
        f"sine of the largest angle to the true row space, at the noise of {width.found.noise:.2g} (spectral norm) "
        "that the singular values past the width show",
    )


def _notes(width: Width) -> tuple[str, ...]:
    found = width.found
    said = [
        f"hidden width {found.rank}: singular value {found.rank} of the answers is {found.values[found.rank - 1]:.3g}, "
        f"the next {found.values[found.rank]:.3g} ({found.gap:.3g} times smaller), and the rest is flat, as noise is."
    ]
    if width.centred:
        said.append("only differences between logits show: the unembedding is known without its mean over tokens.")
    if width.softcap is not None:
        said.append(f"logits are capped: {width.softcap:.6g} tanh(l / {width.softcap:.6g}).")
    return tuple(said)


def _shape(ellipsoid: Ellipsoid, width: int) -> tuple[str, ...]:
    said = [
        "a final norm stands before the unembedding: hidden states lie on an ellipsoid to "
        f"{ellipsoid.gap:.2g}, so the unembedding is known up to a rotation."
    ]
    if ellipsoid.dimension < width:
        said.append(
            f"the ellipsoid has {ellipsoid.dimension} dimensions of {width}: a LayerNorm, or a bias behind the norm."
        )
    return tuple(said)
