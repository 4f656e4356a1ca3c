"""ONNX files as targets, run by onnxruntime: `us.adapters.onnx_session`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.adapters.callable import about, oracle
from unsoftmax.adapters.positions import Position, arranged, index_of, one_name
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.oracles.base import Oracle
from unsoftmax.probes.base import Array

Feed = Array | Callable[[int, int], Array]
"""A further input: an array, or a function of (batch, length)."""

_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
_NUMBERS = {name: name for name in ("bool", "float16", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))}
_NUMBERS |= {"float": "float32", "double": "float64"}
_SCORES = 2**22
"""Scores, batch times length squared, of one call to the session: 16 MB in float32 for each head that keeps them."""


def onnx_session(
    session: Any,
    input: str | None = None,
    output: str | None = None,
    *,
    dim: int | None = None,
    outputs: int | None = None,
    position: Position = -1,
    feeds: Mapping[str, Feed] | None = None,
    max_norm: float | None = None,
    max_length: int | None = None,
    max_batch: int | None = None,
    name: str | None = None,
    part: str | None = None,
) -> Oracle:
    """An oracle of an ONNX file (a path) or an onnxruntime.InferenceSession.

    `input` takes tokens (batch, length, dim) with batch and length free, `output` gives (batch, length, outputs),
    (batch, outputs) or one number per sequence (batch,); both may be omitted when there is one. `feeds` fills further
    inputs; boolean ones without a feed are masks and get True everywhere. `position`: the answering position, last by
    default; `part` is another name for `output`, as other targets have it.
    """
    output = one_name(output, part)
    name = name or (Path(session).name if isinstance(session, (str, Path)) else "onnx session")
    runner = _session(session)
    entry = _chosen(runner.get_inputs(), input, "input", prefer=_TYPES)
    result = _chosen(runner.get_outputs(), output, "output")
    if entry.type not in _TYPES:
        raise InvalidArgument(f"input {entry.name!r} takes {entry.type}; float or double tokens are required.")
    own, fixed_batch = _token_shape(entry, dim)
    masks = _rest(runner.get_inputs(), entry.name, dict(feeds or {}))
    index, dtype = index_of(position), _TYPES[entry.type]

    def run(tokens: Array) -> Array:
        X, place = arranged(np.asarray(tokens), index)
        feed = {key: part(len(X), X.shape[1]) for key, part in masks.items()}
        try:
            (y,) = runner.run([result.name], {entry.name: X.astype(dtype), **feed})
        except Exception as error:
            raise OracleError(f"onnxruntime failed on tokens of shape {X.shape}: {error}") from error
        if np.iscomplexobj(y):
            raise InvalidArgument(f"output {result.name!r} gives complex numbers; name an output of real ones.")
        y = np.asarray(y, dtype=np.float64)
        return y[:, place] if y.ndim == 3 else y

    def ask(tokens: Array) -> Array:
        size = 1 if alone else max(1, _SCORES // tokens.shape[1] ** 2)
        return np.concatenate([run(tokens[i : i + size]) for i in range(0, len(tokens), size)])

    one = _tried(run, own)
    # A batch fixed inside the graph does not show in its input: then sequences are asked one by one.
    alone = fixed_batch == 1 or not _takes_two(run, own)
    if one.ndim not in (1, 2):
        raise InvalidArgument(
            f"output {result.name!r} answers one sequence with shape {one.shape}; (batch, length, outputs), "
            "(batch, outputs) or (batch,) is required."
        )
    width = None if one.ndim == 1 else int(one.shape[1])
    if outputs is not None and outputs != width:
        found = "one number per sequence" if width is None else f"{width} numbers"
        raise InvalidArgument(f"`outputs` is {outputs} but output {result.name!r} gives {found}; omit it.")
    made = oracle(
        ask,
        own,
        dtype=dtype,
        outputs=width,
        max_norm=max_norm,
        max_length=max_length,
        max_batch=max_batch,
        name=name,
    )
    named = f"output {result.name}" if len(runner.get_outputs()) > 1 else None
    return about(made, part=named, position=index)


def _tried(run: Callable[[Array], Array], dim: int) -> Array:
    """The answer to one sequence of two zeros, after one of three was taken too."""
    for length in (3, 2):
        try:
            answer = run(np.zeros((1, length, dim)))
        except OracleError as error:
            raise InvalidArgument(
                f"the model does not take one sequence of {length} tokens: {error} Probes need one token and many; a "
                "reshape to constants, made when the model was exported, fixes the length. Export it with free "
                "(dynamic) axes; if the message speaks of a further input, check feeds=."
            ) from error
    return answer


def _takes_two(run: Callable[[Array], Array], dim: int) -> bool:
    try:
        return len(run(np.zeros((2, 2, dim)))) == 2
    except OracleError:
        return False


def _session(session: Any) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InvalidArgument("this adapter needs onnxruntime; install unsoftmax[onnx].") from error
    if isinstance(session, onnxruntime.InferenceSession):
        return session
    if not isinstance(session, (str, Path)):
        raise InvalidArgument(
            f"`session` must be a path or an onnxruntime.InferenceSession (got {type(session).__name__})."
        )
    if not Path(session).is_file():
        raise InvalidArgument(f"there is no file {session}; check the path of the ONNX model.")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(session), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidArgument(f"onnxruntime cannot load {session}: {error}") from error


def _chosen(values: list[Any], wanted: str | None, what: str, prefer: Mapping[str, str] | None = None) -> Any:
    names = [value.name for value in values]
    if wanted is not None:
        if wanted not in names:
            raise InvalidArgument(f"the model has no {what} {wanted!r}; it has {', '.join(map(repr, names))}.")
        return values[names.index(wanted)]
    likely = [value for value in values if prefer is None or value.type in prefer]
    if len(likely) != 1:
        raise InvalidArgument(f"`{what}` is required: the model has {', '.join(map(repr, names))}.")
    return likely[0]


def _token_shape(entry: Any, dim: int | None) -> tuple[int, int | None]:
    """Token dimension, and the batch size if it is fixed."""
    shape = list(entry.shape or [])
    if shape and len(shape) != 3:
        raise InvalidArgument(f"input {entry.name!r} has shape {shape}; tokens (batch, length, dim) are required.")
    batch, length, own = shape or [None, None, None]
    if isinstance(length, int):
        raise InvalidArgument(
            f"input {entry.name!r} has the fixed length {length}; probes need one token and many. Export the model "
            "with a free (dynamic) length axis."
        )
    if isinstance(batch, int) and batch != 1:
        raise InvalidArgument(
            f"input {entry.name!r} has the fixed batch {batch}; export the model with a free batch axis, or batch 1."
        )
    if isinstance(own, int) and dim is not None and own != dim:
        raise InvalidArgument(f"`dim` is {dim} but input {entry.name!r} takes {own}; pass dim={own} or omit it.")
    found = own if isinstance(own, int) else dim
    if found is None:
        raise InvalidArgument(
            f"`dim` is required: input {entry.name!r} does not say its token dimension; pass dim= (--dim on the "
            "command line)."
        )
    return found, batch if isinstance(batch, int) else None


def _rest(values: list[Any], entry: str, feeds: dict[str, Feed]) -> dict[str, Callable[[int, int], Array]]:
    """What fills every further input, as functions of (batch, length)."""
    others = {value.name: value for value in values if value.name != entry}
    unknown = sorted(set(feeds) - set(others))
    if unknown:
        raise InvalidArgument(f"`feeds` names {unknown[0]!r}, which is no further input; there are {sorted(others)}.")
    for key, value in others.items():
        if key in feeds:
            continue
        if value.type != "tensor(bool)":
            raise InvalidArgument(
                f"the model has a further input {key!r} ({value.type}, shape {value.shape}); fill it with feeds="
                f"{{{key!r}: array or function of (batch, length)}}."
            )
        # A mask in which every token may be attended to; free axes broadcast.
        feeds[key] = np.ones([n if isinstance(n, int) else 1 for n in value.shape or []], dtype=bool)
    return {key: _typed(key, feeds[key], value.type) for key, value in others.items()}


def _typed(key: str, feed: Feed, kind: str) -> Callable[[int, int], Array]:
    """The feed in the number format of its input; kinds that would lose something (floats for a mask) are refused."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    wanted = np.dtype(_NUMBERS[inner]) if inner in _NUMBERS else None

    def fill(batch: int, length: int) -> Array:
        given = np.asarray(feed(batch, length) if callable(feed) else feed)
        if wanted is None:
            return given
        if not np.can_cast(given.dtype, wanted, "same_kind"):
            raise InvalidArgument(f"`feeds` fills {key!r} with {given.dtype}; the input takes {wanted}.")
        return np.asarray(given.astype(wanted))

    return fill
