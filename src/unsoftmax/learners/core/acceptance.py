"""What a learner takes, held against it before the first query: answers as its class declares (`accepts`), and
hyper-parameters of the kinds that its fields are annotated with.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from unsoftmax.arguments import is_number
from unsoftmax.errors import InvalidArgument
from unsoftmax.spec import OracleSpec

Access = Literal["values", "noisy", "labels", "vectors", "ids", "gradient", "attention", "logits"]

SCALARS: tuple[Access, ...] = ("values", "noisy")
"""One real number per sequence of vectors, exact or within a tolerance: what most learners take."""

EXPLAINING: tuple[Access, ...] = (*SCALARS, "gradient", "attention")
"""The same, and values that come with their gradient or the attention behind them."""


@dataclass(frozen=True)
class _Kind:
    """A kind of access in words, the learners for it, and how an oracle that shows it is declared."""

    words: str
    learners: str
    declared: str


_EXPLAINED = "SingleHead, LowRank or MultiHead"

_KINDS: dict[Access, _Kind] = {
    "values": _Kind("one real number per sequence of vectors", "SingleHead or MultiHead", "us.oracle(fn, dim)"),
    "noisy": _Kind(
        "one real number, within a tolerance, per sequence of vectors",
        "Approximate",
        "us.oracle(fn, dim, tolerance=...)",
    ),
    "labels": _Kind("labels of sequences of vectors", "Membership", 'us.oracle(fn, dim, kind="membership")'),
    "vectors": _Kind("vectors, one per sequence of vectors", "AttentionLayer", "us.oracle(fn, dim, outputs=...)"),
    "ids": _Kind("one real number per sequence of token ids", "TokenHead", "us.token_oracle(fn, vocabulary)"),
    "gradient": _Kind("values with their gradients", _EXPLAINED, 'us.oracle(fn, dim, kind="gradient")'),
    "attention": _Kind("values with the attention behind them", _EXPLAINED, 'us.oracle(fn, dim, kind="attention")'),
    "logits": _Kind("what a language model says of the next token", "OutputLayer", "us.logit_oracle(fn, vocabulary)"),
}


def access(spec: OracleSpec) -> Access | None:
    """What an oracle of this spec shows; None for what no learner takes (labels of token ids, several numbers)."""
    if spec.shows is not None:
        return "logits"
    if spec.vocabulary is not None:
        return "ids" if spec.outputs is None and spec.kind in ("value", "approximate") else None
    if spec.outputs is not None:
        return "vectors" if spec.kind in ("value", "approximate") else None
    match spec.kind:
        case "membership":
            return "labels"
        case "gradient" | "attention":
            return spec.kind
    return "noisy" if spec.kind == "approximate" or spec.tolerance > 0 else "values"


def check(learner: Any, spec: OracleSpec) -> None:
    """Raise InvalidArgument for hyper-parameters of the wrong kind, and for an oracle that shows something else."""
    check_parameters(learner)
    accepts: tuple[Access, ...] = learner.accepts
    shown = access(spec)
    if shown in accepts:
        return _check_rank(getattr(learner, "rank", None), spec)
    wanted = _KINDS[accepts[0]]
    remedy = f"declare the oracle with {wanted.declared} if the target shows that"
    if shown is not None:
        remedy += f", or use {_KINDS[shown].learners}, which learns from {_KINDS[shown].words}"
    raise InvalidArgument(f"{type(learner).__name__} learns from {wanted.words}; {remedy}.")


_COUNTS = {"heads": 1, "layers": 1, "measurements": 1, "length": 1}
"""Least values of whole numbers, by name; upper ends depend on the dimension and are each learner's own."""

_POSITIVE = ("W_bound", "margin", "eps_v", "accuracy")


def check_parameters(learner: Any) -> None:
    """Raise InvalidArgument for a hyper-parameter of the wrong kind (a rank of 1.5, a method nobody knows, NaN)."""
    cls: type = type(learner)
    for name, choices in _choices(cls):
        value = getattr(learner, name)
        if choices and not any(_fits(value, choice) for choice in choices):
            raise InvalidArgument(f"`{name}` must be {_words(choices)} (got {value!r}).")
        least = _COUNTS.get(name)
        if least is not None and isinstance(value, (int, np.integer)) and value < least:
            raise InvalidArgument(f"`{name}` must be at least {least} (got {value!r}).")
        if name in _POSITIVE and value is not None and not 0 < value < math.inf:
            raise InvalidArgument(f"`{name}` must be positive and finite (got {value!r}); omit it if it is not known.")


def _check_rank(rank: Any, spec: OracleSpec) -> None:
    """Raise InvalidArgument for a number that is no rank of W (d, d), or of scores (V, V) of token ids."""
    least, most, name = (1, spec.dim, "dim") if spec.vocabulary is None else (0, spec.vocabulary, "vocabulary")
    if isinstance(rank, (int, np.integer)) and not least <= rank <= most:
        raise InvalidArgument(
            f"`rank` must be between {least} and {name} (got {rank} for {name} {most}); pass rank=None to discover it."
        )


@cache
def _choices(learner: type) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Field -> kinds it takes; none where the learner checks an array itself."""
    fields = getattr(learner, "__dataclass_fields__", {})
    found = []
    for name, hint in get_type_hints(learner).items():
        if name in fields:
            kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
            known = all(get_origin(k) is Literal or (isinstance(k, type) and get_origin(k) is None) for k in kinds)
            found.append((name, kinds if known else ()))
    return tuple(found)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str | None) and value in get_args(kind)
    if kind is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if kind is float:
        return is_number(value) and bool(value == value)
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    return isinstance(value, kind)


def _words(kinds: tuple[Any, ...]) -> str:
    words: list[str] = []
    names = {int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None"}
    for kind in kinds:
        words += [repr(v) for v in get_args(kind)] if get_origin(kind) is Literal else [names.get(kind, kind.__name__)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
