"""A callable on token ids as a target: `us.token_oracle`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from unsoftmax.adapters.callable import CallableOracle
from unsoftmax.adapters.positions import Placed, Position, index_of
from unsoftmax.arguments import real
from unsoftmax.errors import InvalidArgument
from unsoftmax.oracles.base import Oracle
from unsoftmax.oracles.semantic import Thresholded
from unsoftmax.spec import Domain, Kind, Link, OracleSpec


def token_oracle(
    fn: Callable[..., Any],
    vocabulary: int | None = None,
    kind: Kind = "value",
    tolerance: float = 0.0,
    dtype: str = "float64",
    outputs: int | None = None,
    max_length: int | None = None,
    forbidden: Iterable[int] = (),
    max_batch: int | None = None,
    link: Link | None = None,
    name: str | None = None,
    part: int | str | None = None,
    position: Position | None = None,
) -> Oracle:
    """Make an oracle of any callable on integer ids 0..vocabulary-1: (batch, N) -> (batch,) or (batch, outputs).

    `vocabulary` may be omitted for reference models, which know theirs. `forbidden` lists ids that are never sent.
    A callable with `accepts_counts = True` is called as fn(ids, counts). The rest is as in `us.oracle`.
    """
    if not callable(fn):
        raise InvalidArgument(
            f"the target must be callable (got {type(fn).__name__}); pass a function of ids (batch, N) -> (batch,)."
        )
    own = getattr(fn, "vocabulary", None)
    if vocabulary is None:
        if not isinstance(own, int):
            raise InvalidArgument("`vocabulary` is required: the target does not say how many token ids it takes.")
        vocabulary = own
    elif isinstance(own, int) and own != vocabulary:
        raise InvalidArgument(
            f"`vocabulary` is {vocabulary} but the target's is {own}; pass vocabulary={own} or omit it, "
            "and list ids that must not be sent as forbidden=."
        )
    real("tolerance", tolerance, closed=True)
    if not isinstance(forbidden, Iterable):
        raise InvalidArgument(f"`forbidden` must list integer token ids (got {forbidden!r}); one id is [id].")
    if kind == "value" and tolerance > 0:
        kind = "approximate"
    index = None if position is None else index_of(position)
    spec = OracleSpec(
        dim=1,
        kind=kind,
        tolerance=tolerance,
        dtype=dtype,
        domain=Domain(max_length=max_length, forbidden=tuple(forbidden)),
        outputs=getattr(fn, "outputs", None) if outputs is None else outputs,
        max_batch=max_batch,
        link=link,
        vocabulary=vocabulary,
        name=name or getattr(fn, "__name__", type(fn).__name__),
        part=None if part is None else str(part),
        position=index,
    )
    asked = fn if part is None and index is None else Placed(fn, part, index)
    source = CallableOracle(asked, spec, named=name is not None)
    return Thresholded(source) if kind == "membership" else source
