"""Hyper-parameters of the wrong kind are refused before a query: what a field takes is read from its annotation.

Theory: docs/concepts.md, "Programs and oracles".
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from unsoftmax.arguments import is_number
from unsoftmax.errors import InvalidArgument

_COUNTS = {"heads": 1, "layers": 1, "measurements": 1, "length": 1}
"""Least values of whole numbers, by name; upper ends depend on the dimension and are each learner's own."""

_POSITIVE = ("W_bound", "margin", "eps_v")


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
        if name in _POSITIVE and value is not None and not value > 0:
            raise InvalidArgument(f"`{name}` must be positive (got {value!r}); omit it if it is not known.")


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
