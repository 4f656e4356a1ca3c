"""Output layers on fresh prompts: their logits lie in the row space, and their hidden states on the ellipsoid.

Theory: docs/theory/verification.md, "Output layers".
"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.core.base import Allowance, Asking
from unsoftmax.learners.output.reading import centre, random_prompts, read
from unsoftmax.learners.output.width import common_block
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.probes.base import Array, Probes
from unsoftmax.results.recovery import Claim
from unsoftmax.solvers.ellipsoid import Ellipsoid
from unsoftmax.solvers.row_space import GAP
from unsoftmax.solvers.softcap import uncapped
from unsoftmax.spec import OracleSpec
from unsoftmax.theory import output_layer_requests_per_prompt
from unsoftmax.verify.constants import VERIFY
from unsoftmax.verify.constants_models import MODELS
from unsoftmax.verify.gaps import unseen
from unsoftmax.verify.plan import Checked, Count, Plan


def count(spec: OracleSpec, heads: Count) -> Count:
    """Chosen tokens take several requests per prompt, the more the wider the hidden states are."""
    if spec.shows == "top":
        return MODELS.output_tops, MODELS.output_tops
    if spec.shows != "chosen":
        return MODELS.output_prompts, MODELS.output_prompts
    vocabulary, shown = spec.vocabulary or 0, spec.outputs or 2
    fewest, most = (
        output_layer_requests_per_prompt(columns, shown)
        for columns in (min(vocabulary, 2 + MODELS.output_columns), vocabulary)
    )
    return MODELS.output_prompts * fewest, MODELS.output_prompts * most


def check(model: OutputLayer, spec: OracleSpec, seed: int, allows: Allowance) -> Asking[Checked]:
    """Ask fresh prompts; what lies outside the row space is held against the noise that the learner measured."""
    rng = np.random.default_rng([seed, 0x0B7])
    rows, basis = yield from _fresh(model, spec, rng)
    rows = centre(rows) if model.centred else rows if model.softcap is None else uncapped(rows, model.softcap)
    Q, R = np.linalg.qr(basis.T)
    z = np.linalg.solve(R, (rows @ Q).T).T
    size = float(np.sqrt(np.mean(rows**2)))
    outside = float(np.abs(rows - (rows @ Q) @ Q.T).max()) / size if size else 0.0
    found = [
        Claim(
            "outside the row space",
            _bound(model, rows, size, spec, allows),
            outside,
            statement=f"largest part of a logit that {model.width} coordinates do not explain, relative to the root "
            f"mean square, on {len(rows)} fresh prompts of {rows.shape[1]} tokens",
        ),
        _width(model, len(rows)),
    ]
    if model.metric is not None:
        centre_ = np.zeros(model.width) if model.centre is None else model.centre
        off = float(np.abs(Ellipsoid(model.metric, centre_, model.width, 0.0).off(z)).max())
        found.append(
            Claim(
                "off the ellipsoid",
                MODELS.output_off,
                off,
                statement=f"largest |(z - c)'M(z - c) - 1| on {len(rows)} fresh prompts",
            )
        )
    return Checked(tuple(found))


PLAN = Plan(count, check)


def _width(model: OutputLayer, fresh: int) -> Claim:
    """The gap behind the last dimension, and how many prompts had the chance to show another."""
    assert model.singular_values is not None
    s, d = model.singular_values, model.width
    after = float(s[d]) if d < len(s) else 0.0
    spare = len(s) - d + fresh
    return Claim(
        "another dimension",
        1 / GAP,
        after / float(s[d - 1]),
        statement=f"singular value {d + 1} of the answers over singular value {d}; none of {spare} prompts beyond the "
        f"{d} that span the row space leaves it: with {1 - VERIFY.doubt:.0%} confidence fewer than "
        f"{unseen(spare):.0%} of such prompts do",
    )


def _fresh(model: OutputLayer, spec: OracleSpec, rng: np.random.Generator) -> Asking[tuple[Array, Array]]:
    """Rows (n, m) of fresh prompts and the columns (width, m) of the basis that belong to them."""
    if spec.shows == "top":
        k = (spec.outputs or 2) // 2
        answers = yield Probes(random_prompts(spec, MODELS.output_tops, rng), phase="verify")
        ids, logits = answers[:, :k].astype(np.int64), answers[:, k:]
        tokens, rows = common_block(ids, logits, spec.vocabulary or 0)
        assert model.tokens is not None
        both, here, there = np.intersect1d(tokens, model.tokens, return_indices=True)
        return rows[:, here], _recentred(model.basis[:, there]) if len(both) else model.basis[:, :0]
    columns = np.arange(model.vocabulary)
    if spec.shows == "chosen":
        columns = rng.choice(columns, min(model.vocabulary, 2 * model.width + MODELS.output_columns), replace=False)
    rows = yield from read(spec, random_prompts(spec, MODELS.output_prompts, rng), columns, "verify")
    basis = model.basis[:, columns]
    return rows, _recentred(basis) if spec.shows == "chosen" else basis


def _recentred(basis: Array) -> Array:
    """Columns of some tokens for rows that are centred over these tokens alone."""
    return np.asarray(basis - basis.mean(axis=1, keepdims=True))


def _bound(model: OutputLayer, rows: Array, size: float, spec: OracleSpec, allows: Allowance) -> float:
    """What noise and arithmetic leave outside the row space, relative to the root mean square `size` of the rows."""
    assert model.singular_values is not None
    s = model.singular_values
    n = len(s)
    tail = float(s[model.width]) if model.width < n else 0.0
    # Noise of entry size e has a largest singular value of e (sqrt V + sqrt n); the largest of m entries is 6 e.
    entry = tail / (np.sqrt(model.vocabulary) + np.sqrt(n))
    # An error of the row space by an angle moves that share of a row, over all its entries.
    angle = 0.0 if allows.row_space is None else allows.row_space.bound
    # A sum of `width` products is off by up to width eps of its largest terms.
    arithmetic = 4 * model.width * spec.eps * float(np.abs(rows).max())
    return float(
        min(
            VERIFY.one_digit,
            (arithmetic + 2 * spec.tolerance + MODELS.output_slack * 6 * entry) / max(size, 1e-300) + 6 * angle,
        )
    )
