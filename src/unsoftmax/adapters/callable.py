"""Any callable as a target: `us.oracle`; one that explains its answers, (value, gradient) or (value, attention)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unsoftmax import links
from unsoftmax.adapters.positions import Placed, Position, index_of
from unsoftmax.arguments import real
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.models.base import Model
from unsoftmax.models.explanations import attention, gradient
from unsoftmax.oracles.base import Oracle, answered, is_real
from unsoftmax.oracles.identity import fingerprint
from unsoftmax.oracles.semantic import Thresholded
from unsoftmax.probes.base import Array, Probes
from unsoftmax.spec import EXPLAINED, Domain, Kind, Link, OracleSpec


@dataclass(frozen=True)
class CallableOracle:
    """fn on plain (batch, N, d) arrays; with `accepts_counts = True` it is called as fn(tokens, counts)."""

    fn: Callable[..., Any]
    spec: OracleSpec
    named: bool = False

    def identity(self) -> dict[str, Any]:
        """A name given by the user is the identity; otherwise the parameters within reach tell targets apart."""
        target = self.fn.fn if isinstance(self.fn, Placed) else self.fn
        if self.named and not isinstance(target, Model):
            return {"name": self.spec.name}
        own = getattr(target, "identity", None)
        return dict(own()) if callable(own) else {"name": self.spec.name, "parameters": fingerprint(target)}

    def __call__(self, probes: Probes) -> Array:
        answer = answered(self.fn, probes)
        return answer if self.spec.link is None else _unlinked(answer, self.spec.link)


def about(made: Oracle, **facts: Any) -> Oracle:
    """The oracle of an adapter with what its spec should say of the part that answers, and where."""
    if isinstance(made, Thresholded):
        return replace(made, inner=about(made.inner, **facts))
    assert isinstance(made, CallableOracle)
    return replace(made, spec=replace(made.spec, **facts))


def _unlinked(answer: Array, link: Link) -> Array:
    """f from link(f); +-inf where the answer is saturated. Two columns under "sigmoid" are class probabilities."""
    if not is_real(answer):
        # The stack refuses it by name.
        return answer
    if link == "sigmoid" and answer.ndim == 2 and answer.shape[1] == 2:
        return links.from_probabilities(answer)
    return links.inverse(link, answer)


def oracle(
    fn: Callable[..., Any],
    dim: int | None = None,
    kind: Kind = "value",
    tolerance: float = 0.0,
    dtype: str = "float64",
    outputs: int | None = None,
    max_norm: float | None = None,
    max_length: int | None = None,
    max_batch: int | None = None,
    link: Link | None = None,
    name: str | None = None,
    part: int | str | None = None,
    position: Position | None = None,
) -> Oracle:
    """Make an oracle of any callable (batch, N, d) -> (batch,) or (batch, outputs).

    `dim` may be omitted for reference models, which know theirs. `kind="membership"`: fn returns values, or booleans
    or 0 and 1, and the oracle shows only f > 0. `tolerance` declares |answer - f| <= tolerance. `link`: the answers
    are link(f), and `tolerance` is about them; "sigmoid" also takes the probabilities of two classes as columns
    (1 - p, p), one answer: `outputs` stays None. `kind="gradient"`: fn returns (y (batch,), df/dX (batch, N, d));
    `kind="attention"`: (y (batch,), weights (batch, N) or (batch, H, N)); reference models explain themselves.
    `name` is the identity of the target in a ledger.
    `part`: the entry of the dict or tuple that fn returns. `position`: where the query token is put, and of answers for
    every position (batch, N, outputs) the one that is taken; None: fn answers for the last token by itself.
    """
    if any(base.__module__ == "torch.nn.modules.module" for base in type(fn).__mro__):
        raise InvalidArgument(
            f"{type(fn).__name__} is a PyTorch module and takes tensors; wrap it with "
            "us.adapters.torch_module(module, dim), or pass a function of arrays that calls it."
        )
    if not callable(fn):
        raise InvalidArgument(
            f"the target must be callable (got {type(fn).__name__}); pass a function (batch, N, d) -> (batch,)."
        )
    own = getattr(fn, "dim", None)
    if dim is None:
        if not isinstance(own, int):
            raise InvalidArgument(
                "`dim` is required: the target does not say its token dimension; pass dim= (--dim on the command line)."
            )
        dim = own
    elif isinstance(own, int) and own != dim:
        raise InvalidArgument(f"`dim` is {dim} but the target's token dimension is {own}; pass dim={own} or omit it.")
    real("tolerance", tolerance, closed=True)
    if kind == "value" and tolerance > 0:
        kind = "approximate"
    called = name or getattr(fn, "__name__", type(fn).__name__)
    if kind in EXPLAINED:
        fn = explained(fn, kind, outputs=outputs, link=link)
    if outputs is None:
        outputs = getattr(fn, "outputs", None)
    elif link is not None:
        raise InvalidArgument(
            f"`outputs` must be omitted with link={link!r} (got {outputs!r}): links are undone for one number per "
            "sequence, and probabilities of two classes (1 - p, p) are one number."
        )
    index = None if position is None else index_of(position)
    spec = OracleSpec(
        dim=dim,
        kind=kind,
        tolerance=tolerance,
        dtype=dtype,
        domain=Domain(max_norm, max_length),
        outputs=outputs,
        max_batch=max_batch,
        link=link,
        name=called,
        part=None if part is None else str(part),
        position=index,
    )
    asked = fn if part is None and index is None else Placed(fn, part, index)
    source = CallableOracle(asked, spec, named=name is not None)
    return Thresholded(source) if kind == "membership" else source


@dataclass(frozen=True)
class Explained:
    """fn(tokens) -> (y (batch,), explanation) as rows (batch, 1 + numbers): the value first, the rest in order.

    Copies of a row are expanded; what is said of them is added up, as a derivative along all of them is.
    """

    fn: Callable[..., Any]
    kind: Kind
    accepts_counts: bool = True
    outputs: None = None

    def identity(self) -> dict[str, Any]:
        own = getattr(self.fn, "identity", None)
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return dict(own()) if callable(own) else {"name": name, "parameters": fingerprint(self.fn)}

    def __call__(self, tokens: Array, counts: Array | None = None) -> Array:
        if counts is None:
            return self._rows(tokens)
        rows = []
        for sequence, copies in zip(tokens, counts, strict=True):
            y, *parts = np.split(self._rows(np.repeat(sequence, copies, axis=0)[None])[0], [1])
            split = parts[0].reshape((-1, copies.sum()) if self.kind == "attention" else (copies.sum(), -1))
            starts = np.concatenate([[0], np.cumsum(copies)[:-1]])
            added = np.add.reduceat(split, starts, axis=1 if self.kind == "attention" else 0)
            rows.append(np.concatenate([y, added.ravel()]))
        return np.stack(rows)

    def _rows(self, tokens: Array) -> Array:
        if isinstance(self.fn, Model):
            more = gradient(self.fn, tokens) if self.kind == "gradient" else attention(self.fn, tokens)
            answer: Any = (self.fn(tokens), more)
        else:
            answer = self.fn(tokens)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise OracleError(
                f'a target of kind "{self.kind}" answers with a pair (values (batch,), '
                f"{'gradients (batch, N, d)' if self.kind == 'gradient' else 'weights (batch, N) or (batch, H, N)'}) "
                f"(got {type(answer).__name__})."
            )
        y, more = np.asarray(answer[0]), np.asarray(answer[1])
        self._check(y, more, tokens)
        return np.concatenate([y.reshape(len(tokens), 1), more.reshape(len(tokens), -1)], axis=1)

    def _check(self, y: Array, more: Array, tokens: Array) -> None:
        batch, length, dim = tokens.shape
        if self.kind == "gradient":
            fits, wanted = more.shape == (batch, length, dim), f"(batch, N, d) = {(batch, length, dim)}"
        else:
            fits = more.ndim in (2, 3) and (more.shape[0], more.shape[-1]) == (batch, length)
            wanted = f"(batch, N) or (batch, H, N), N = {length}"
        if not fits or y.shape not in ((batch,), (batch, 1)):
            raise OracleError(
                f"the target answered with shapes {y.shape} and {more.shape}; (batch,) and {wanted} were required."
            )


def explained(fn: Callable[..., Any], kind: Kind, **absent: Any) -> Explained:
    """The target as one that answers in rows; what does not go with an explanation is refused by name."""
    for name, value in absent.items():
        if value is not None:
            raise InvalidArgument(f'`{name}` must be omitted with kind="{kind}" (got {value!r}): an answer is a value.')
    return Explained(fn, kind)
