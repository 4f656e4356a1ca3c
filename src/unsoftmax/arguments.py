"""Kinds of arguments, checked in one way: whole and real numbers, text, functions that name their arguments, extras."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

from unsoftmax.errors import InvalidArgument

P = ParamSpec("P")
T = TypeVar("T")


def whole(name: str, value: Any, least: int = 1) -> None:
    """Raise unless the value is a whole number of at least `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise InvalidArgument(f"`{name}` must be a whole number of at least {least} (got {value!r}).")


def text(name: str, value: Any) -> None:
    """Raise unless the value is text that UTF-8 can write: bytes of another encoding arrive as lone surrogates."""
    try:
        if isinstance(value, str):
            value.encode()
            return
    except UnicodeEncodeError:
        pass
    raise InvalidArgument(f"`{name}` must be text in UTF-8 (got {value!r}).")


def either(name: str, value: Any) -> None:
    """Raise unless the value is True or False: a text is true whatever it says."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"`{name}` must be True or False (got {value!r}).")


def is_number(value: Any) -> bool:
    """Whether a value is a real number within the range of float64 (infinities and NaN are in it), no truth value."""
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and isinstance(float(value), float)
    except OverflowError:
        return False


def real(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, closed: bool = False) -> None:
    """Raise unless the value is a number above `low` (or equal, if `closed`) and below `high`."""
    if not is_number(value) or not (low <= value if closed else low < value) or not (value < high or high == math.inf):
        least = f"at least {low:g}" if closed else "positive" if low == 0 else f"above {low:g}"
        limit = "" if high == math.inf else f" and below {high:g}"
        raise InvalidArgument(f"`{name}` must be a number, {least}{limit} (got {value!r}).")


def _wholes(name: str, values: Any) -> None:
    for value in values:
        whole(name, value)


_COUNTS = ("slots", "last_slots", "tokens", "extra", "repeats")
"""Counts of the designs for layers with positions."""

_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("d", "H", "G", "L", "N", "T", "V", "s", "rows", "groups", "block", "outputs"), whole),
    **dict.fromkeys(("r", "m", "spare", "full", "blocks", "network_queries", *_COUNTS), lambda n, v: whole(n, v, 0)),
    **dict.fromkeys(
        (
            "W_bound",
            "margin",
            "accuracy",
            "value_accuracy",
            "max_norm",
            "value_norm",
            "eps",
            "eps_W",
            "eps_v",
            "constant",
        ),
        real,
    ),
    **dict.fromkeys(("tolerance", "price", "principal"), lambda n, v: real(n, v, closed=True)),
    "floor": real,
    "queries": whole,
    "delta": lambda n, v: real(n, v, high=1.0),
    "flip": lambda n, v: real(n, v, high=0.5),
    "dims": _wholes,
    "k": lambda n, v: whole(n, v, 2),
}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function, refusing arguments that are not what their names stand for: d a dimension, r a rank up to d."""
    signature = inspect.signature(function)

    @wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            optional = signature.parameters[name].default is None
            if name in _CHECKS and not (optional and value is None):
                _CHECKS[name](name, value)
        rank, size = given.get("r"), given.get("d", given.get("V"))
        if rank is not None and size is not None and rank > size:
            which = "d" if "d" in given else "V"
            raise InvalidArgument(f"`r` must be between 0 and {which} (got {rank} for {which} = {size}).")
        return function(*args, **kwargs)

    return refusing


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Refuse what needs packages of an extra that are not installed, by the command that installs them."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise InvalidArgument(
            f'{what} needs {" and ".join(missing)}, which the extra "{extra}" brings: pip install "unsoftmax[{extra}]".'
        )
