"""The whole program: tokens, heads apart, values, turns, keys, queries."""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Program
from unsoftmax.learners.rotary.apart import tell_apart
from unsoftmax.learners.rotary.assembly import outcome
from unsoftmax.learners.rotary.keys import read_keys
from unsoftmax.learners.rotary.kind import Kind
from unsoftmax.learners.rotary.presets import PLANS
from unsoftmax.learners.rotary.queries import read_queries
from unsoftmax.learners.rotary.scene import read_scene
from unsoftmax.learners.rotary.turns import read_turns
from unsoftmax.learners.rotary.values import read_values
from unsoftmax.learners.rotary.weights import Reader
from unsoftmax.spec import OracleSpec


def rotary(spec: OracleSpec, norm: str | None, kind: Kind, preset: str, rng: np.random.Generator) -> Program:
    """A layer with rotary positions, with RMSNorm or none; heads share keys and values or not."""
    plan = PLANS[preset]
    scene = yield from read_scene(spec, norm, kind.sinks, rng)
    apart = yield from tell_apart(scene, rng)
    values = yield from read_values(scene, apart, plan.spare, np.ones(apart.heads), rng)
    reader = Reader(scene, values)
    turns = yield from read_turns(reader, plan, rng)
    keys = yield from read_keys(reader, turns, plan, rng)
    queries = yield from read_queries(reader, turns, keys, plan, rng)
    return outcome(reader, turns, keys, queries, kind, spec)
