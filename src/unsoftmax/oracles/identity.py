"""Whose answers are these? The identity of a target, for the binding of a ledger."""

from __future__ import annotations

import functools
import json
import types
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import xxhash

from unsoftmax.models.base import Model
from unsoftmax.oracles.base import Oracle

_DEPTH = 6
"""Objects inside objects that are looked through for parameters: a module in a closure in a partial is three."""


def identity(oracle: Oracle) -> dict[str, Any]:
    """What tells this target from another: wrappers with their settings, the name, the parameters within reach.

    A source may say it itself through a method `identity()`.
    """
    own = getattr(oracle, "identity", None)
    if callable(own):
        return dict(own())
    if is_dataclass(oracle) and hasattr(oracle, "inner"):
        settings = {f.name: getattr(oracle, f.name) for f in fields(oracle) if f.name != "inner"}
        return {"wrapper": type(oracle).__name__, **settings, "inner": identity(oracle.inner)}
    return {"name": oracle.spec.name, "parameters": fingerprint(oracle)}


def fingerprint(target: Any) -> str | None:
    """Digest of every array reachable from a callable; None if there is none.

    Followed: closures, defaults, global names a function uses, bound objects, attributes, slots, partial arguments,
    tuples and dictionaries. Lists and numbers are left out: they tend to be logs and counters, which change as the
    target is used and do not tell it from another; a target that keeps its weights in a list needs a `name`.
    """
    found: list[str] = []
    _visit(target, found, {}, _DEPTH)
    return xxhash.xxh3_128_hexdigest("".join(found).encode()) if found else None


def _visit(value: Any, found: list[str], seen: dict[int, Any], depth: int) -> None:
    if depth < 0 or id(value) in seen or isinstance(value, (type, types.ModuleType)):
        return
    seen[id(value)] = value  # kept alive, so that no other object gets its id
    inner: list[Any]
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fiub":
            shape = f"{value.shape}{value.dtype.str}"
            found.append(shape + xxhash.xxh3_128_hexdigest(value.tobytes()))
        return
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        used = [value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__]
        inner = [*cells, *(value.__defaults__ or ()), *used]
    elif isinstance(value, types.MethodType):
        inner = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, tuple):
        inner = list(value)
    elif isinstance(value, dict):
        inner = [item for _, item in sorted(value.items(), key=lambda pair: repr(pair[0]))]
    elif isinstance(value, Model):
        inner = list(value.parameters().values())
    elif callable(getattr(value, "state_dict", None)):
        inner = [tensor.detach().cpu().numpy() for tensor in value.state_dict().values() if hasattr(tensor, "detach")]
    elif hasattr(type(value), "__slots__") and not hasattr(value, "__dict__"):
        names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        inner = [getattr(value, name) for name in sorted(names) if hasattr(value, name)]
    elif hasattr(value, "__dict__") and not isinstance(value, np.random.Generator):
        inner = [attribute for _, attribute in sorted(vars(value).items())]
    else:
        return
    for item in inner:
        _visit(item, found, seen, depth - 1)


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def flattened(binding: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one level, names joined by a dot; values as JSON gives them back."""
    flat: dict[str, Any] = {}
    for name, value in binding.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.loads(json.dumps(value, default=_plain))
    return flat


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {xxhash.xxh3_128_hexdigest(value.tobytes())}"
    if callable(value):
        # Its repr would hold an address in memory, another one in the next run.
        return f"{getattr(value, '__qualname__', type(value).__qualname__)} {fingerprint(value)}"
    return repr(value)
