"""TARGET on the command line: a saved model, an ONNX file, a Python factory, or the address of a server."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from unsoftmax import adapters, models
from unsoftmax.errors import InvalidArgument, OracleError
from unsoftmax.models.base import Model
from unsoftmax.oracles.base import Oracle

HELP = (
    "What to ask: a .safetensors reference model, an .onnx file, module.py:factory for PyTorch or any callable, "
    "or the URL of a server: http://host:port/v2/models/NAME for the Open Inference Protocol v2, the base address with "
    "--api for others (http://host:8000/v1 --api openai --model NAME)."
)

_FLAGS = {"token_variable": "--token-env"}


def resolve(target: str, **options: Any) -> tuple[Oracle, Model | None]:
    """The oracle of a target, and the true model where the target is one. `options` go to the adapter."""
    if target.startswith(("http://", "https://")):
        return _server(target, options), None
    _refuse([name for name in ("api", "model", "wire") if name in options], "a target that is no server")
    path, _, factory = target.rpartition(":")
    if path.endswith(".py"):
        return _made(Path(path), factory, options), None
    file = Path(target)
    if file.is_dir():
        raise InvalidArgument(
            f"{target or 'an empty name'} is a folder; TARGET is a file, module.py:factory, or a URL."
        )
    if not file.exists():
        raise InvalidArgument(
            f"{target} does not exist; TARGET is a .safetensors or .onnx file, module.py:factory, or a URL."
        )
    match file.suffix:
        case ".safetensors":
            model = models.load(file)
            return _reference(model, {"name": file.stem, **options}), model
        case ".onnx":
            return _made_by(adapters.onnx_session, file, options), None
        case ".py":
            raise InvalidArgument(f"{target} needs a factory: write {target}:make_model.")
        case other:
            raise InvalidArgument(
                f"{target} has the unknown file type {other!r}; use .safetensors, .onnx or module.py:factory."
            )


def _made_by(adapter: Callable[..., Oracle], target: Any, options: dict[str, Any]) -> Oracle:
    """adapter(target, **options); an option it does not know is the user's mistake, said before anything is asked."""
    known = inspect.signature(adapter).parameters
    name = adapter.func.__name__ if isinstance(adapter, partial) else adapter.__name__
    _refuse([name for name in options if name not in known], f"this kind of target ({name})")
    return adapter(target, **options)


def _refuse(foreign: list[str], what: str) -> None:
    """Options that do not apply must not be dropped in silence."""
    if foreign:
        flags = ", ".join(_FLAGS.get(name, f"--{name.replace('_', '-')}") for name in foreign)
        raise InvalidArgument(f"{flags} {'does' if len(foreign) == 1 else 'do'} not apply to {what}.")


def _reference(model: Model, options: dict[str, Any]) -> Oracle:
    vocabulary = getattr(model, "vocabulary", None)
    if vocabulary is not None:
        return _made_by(partial(adapters.token_oracle, vocabulary=vocabulary), model, options)
    return _made_by(adapters.oracle, model, options)


_WIRES: dict[str, Callable[..., Oracle]] = {
    "openai": adapters.openai,
    "chat": partial(adapters.openai, api="chat"),
    "embeddings": partial(adapters.openai, api="embeddings"),
    "llama.cpp": adapters.llama_cpp,
    "sglang": adapters.sglang,
    "tei": adapters.tei,
}
"""Adapters by the word that --api takes."""


def _server(url: str, options: dict[str, Any]) -> Oracle:
    api, wire = options.pop("api", "oip"), options.pop("wire", {})
    if api == "oip":
        _refuse(["wire"] if wire else [], "the Open Inference Protocol v2")
        return _open_inference(url, options)
    if api not in _WIRES:
        raise InvalidArgument(f"`--api` must be oip, {', '.join(_WIRES)} (got {api}).")
    made = _WIRES[api]
    known = inspect.signature(made).parameters
    given = {**options, **wire}
    if "model" in known and "model" not in given:
        raise InvalidArgument(f"`--model` is required with --api {api}: the name of the model on the server.")
    carrying = ("rate", "concurrency", "timeout", "retries", "backoff", "verify_tls")
    _refuse([name for name in given if name not in known and name not in carrying], f"--api {api}")
    return made(url, **given)


def _open_inference(url: str, options: dict[str, Any]) -> Oracle:
    base, marker, rest = url.partition("/v2/models/")
    if not marker and "model" in options:
        base, marker, rest = url.rstrip("/"), "/v2/models/", quote(options["model"], safe="")
    options = {name: value for name, value in options.items() if name != "model"}
    name, *more = rest.split("?")[0].strip("/").split("/")
    if not marker or not name:
        raise InvalidArgument(
            f"{url} does not name a model; write http://host:port/v2/models/NAME, or say what it speaks with --api "
            "and --model."
        )
    if more[:1] == ["versions"] and len(more) > 1:
        options = {**options, "version": unquote(more[1])}
    return _made_by(partial(adapters.http, base), unquote(name), options)


def known(reference: str, **options: Any) -> Any:
    """What a reference is known by: a model or PyTorch module itself, whose weights can be reached; the path of a model
    file, which may state the error of a recovery; else the oracle."""
    path, _, factory = reference.rpartition(":")
    if path.endswith(".py"):
        made = _returned(Path(path), factory)
        reachable = isinstance(made, Model) or hasattr(made, "state_dict")
        return made if reachable else _oracle_of(made, Path(path), factory, options)
    asked, held = resolve(reference, **options)
    return asked if held is None else Path(reference)


def _made(path: Path, factory: str, options: dict[str, Any]) -> Oracle:
    return _oracle_of(_returned(path, factory), path, factory, options)


def _returned(path: Path, factory: str) -> Any:
    """What the factory of a Python file returns."""
    if not path.exists():
        raise InvalidArgument(
            f"{path} does not exist; write module.py:factory with the path of a Python file you trust."
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path} cannot be imported as Python.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        make = getattr(module, factory, None)
        if not callable(make):
            raise InvalidArgument(f"{path} has no function {factory!r}; name the function that returns your model.")
        return make()
    except InvalidArgument:
        raise
    except (Exception, SystemExit) as error:
        words = f"{path}:{factory} raised {type(error).__name__}: {' '.join(str(error).split())}".rstrip(" :.")
        raise OracleError(f"{words}; mend the factory (--debug shows where it happened).") from error


def _oracle_of(made: Any, path: Path, factory: str, options: dict[str, Any]) -> Oracle:
    if isinstance(made, Oracle):
        _refuse(list(options), f"{path}:{factory}, which returns an oracle: set it there")
        return made
    if hasattr(made, "state_dict"):
        return _made_by(adapters.torch_module, made, options)
    if not callable(made):
        raise InvalidArgument(
            f"{path}:{factory} returned {type(made).__name__}; return a PyTorch module, a callable or an oracle."
        )
    return _made_by(adapters.oracle, made, {"name": f"{path.stem}:{factory}", **options})
