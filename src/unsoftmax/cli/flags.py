"""Options of commands: their types, and how a command takes them from flags and from the TOML file of --config."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from unsoftmax.cli import targets
from unsoftmax.cli.exits import one_sentence
from unsoftmax.errors import InvalidArgument

Target = Annotated[str, typer.Argument(metavar="TARGET", help=targets.HELP)]
Learner = Annotated[str | None, typer.Option(help="auto, or a learner such as SingleHead or LowRank.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Learner parameter NAME=VALUE; repeatable.")]
Verify = Annotated[bool | None, typer.Option("--verify/--no-verify", help="Check on fresh queries (default: yes).")]
RecoveryFile = Annotated[Path | None, typer.Option(help="Save the Recovery here (.safetensors).")]
Page = Annotated[Path | None, typer.Option(help="Write an HTML page here.")]
Sarif = Annotated[Path | None, typer.Option(help="Write SARIF for code-scanning pages here.")]
CycloneDx = Annotated[Path | None, typer.Option(help="Write a CycloneDX 1.6 attestation here.")]

Seed = Annotated[int | None, typer.Option(help="Seed of the learner and of the verification (default 0).", min=0)]
BudgetOption = Annotated[
    int | None, typer.Option("--budget", help="Most queries that may be billed, all included.", min=0)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags override it.")]
Ledger = Annotated[Path | None, typer.Option(help="Keep every answer in this file; the same command then resumes.")]
Workers = Annotated[int | None, typer.Option(help="Threads that ask the target at the same time (default 1).", min=1)]
Price = Annotated[float | None, typer.Option(help="Price of one query, for cost budgets and reports.", min=0)]
MaxNorm = Annotated[float | None, typer.Option(help="Largest token norm the target accepts.")]
MaxLength = Annotated[int | None, typer.Option(help="Longest sequence the target accepts.", min=1)]
MaxBatch = Annotated[int | None, typer.Option(help="Most sequences per call.", min=1)]
Tolerance = Annotated[float | None, typer.Option(help="Answers are within this of the model's value.", min=0)]
Dim = Annotated[int | None, typer.Option(help="Token dimension, where the target does not say it.", min=1)]
Rate = Annotated[
    float | None, typer.Option("--rate", help="Queries per second sent to a server at most (default 1000).", min=0)
]
TokenEnv = Annotated[
    str | None,
    typer.Option(
        "--token-env",
        help="Name of the environment variable with the server's bearer token, never the token itself "
        "(default UNSOFTMAX_TOKEN).",
    ),
]
MaxCost = Annotated[float | None, typer.Option("--max-cost", help="Most the queries may cost at --price.", min=0)]
Part = Annotated[
    str | None,
    typer.Option(
        "--part",
        help="Part of the target that answers: a module inside it (attention or block of a Transformer layer), an "
        "output of an ONNX file or a server, an entry of what a callable returns. Default: the target itself.",
    ),
]
Position = Annotated[
    str | None,
    typer.Option(
        "--position", help="Position that answers, where the query token is put: first, last or an index from 0 or -1."
    ),
]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="The answers are this function of the value: sigmoid, exp, log or tanh.")
]
Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        help="What the server at TARGET speaks: oip (default), openai, chat, embeddings, llama.cpp, sglang or tei.",
    ),
]
ModelName = Annotated[str | None, typer.Option("--model", help="Name of the model on that server.")]
WireOption = Annotated[
    list[str] | None,
    typer.Option("--wire", help="Argument of that wire, NAME=VALUE (vocabulary=512, shows=top, top=20); repeatable."),
]
KindOption = Annotated[str | None, typer.Option("--kind", help="value, approximate or membership.")]

DOMAIN = {"dim": Dim, "tolerance": Tolerance, "max_norm": MaxNorm, "max_length": MaxLength, "max_batch": MaxBatch}
"""What a target is told about itself."""

VIEW = {"kind": KindOption, "part": Part, "position": Position}
"""What of it answers, and how."""

SERVER = {"token_env": TokenEnv, "api": Api, "model": ModelName, "wire": WireOption}
"""How a server is spoken to."""

_POSITIVE = ("workers", "max_batch", "max_length", "dim", "rate", "send_rate", "keep_above")
_NAMES = {
    int: "a whole number", bool: "true or false", str: "text", (int, float): "a number",
    (int, str): "an index, first or last",
}  # fmt: skip


def takes(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with these options, by name: annotated types, None unless a flag or the file of --config gives them.

    The function below gets its arguments, the options as a dict, and whether to print JSON; errors become a sentence.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        arguments = [parameter for parameter in own if parameter.name not in ("options", "as_json")]

        def called(*, config: Path | None, as_json: bool, debug: bool, **given: Any) -> None:
            with one_sentence(debug, as_json):
                named = {argument.name: given.pop(argument.name) for argument in arguments}
                command(**named, options=_merged(config, options, given), as_json=as_json)

        flags = dict.fromkeys(options) | {"config": None, "as_json": False, "debug": False}
        kinds = options | {"config": Config, "as_json": Json, "debug": Debug}
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [argument.replace(kind=inspect.Parameter.KEYWORD_ONLY) for argument in arguments]
            + [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[name])
                for name, default in flags.items()
            ]
        )
        return called

    return decorated


_WRITTEN = {"output", "report", "sarif", "cyclonedx", "ledger", "monitor"}
"""Defined: options that name a file to be written."""


def _merged(config: Path | None, options: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Options from the TOML file, overridden by flags that were given (None means not given)."""
    found: dict[str, Any] = {}
    if config is not None:
        try:
            found = tomllib.loads(config.read_text())
        except OSError as error:
            raise InvalidArgument(f"{config} cannot be read ({error.strerror or error}).") from error
        except RecursionError as error:
            raise InvalidArgument(f"{config} nests tables or lists too deeply.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{config} is not TOML ({error}).") from error
        found = {name.replace("-", "_"): value for name, value in found.items()}
        unknown = set(found) - set(options)
        if unknown:
            raise InvalidArgument(
                f"{config} has unknown options {', '.join(sorted(unknown))}; known are {', '.join(options)}."
            )
        for name, value in found.items():
            _check(config, name, options[name], value)
    merged = {name: found.get(name) if flags[name] is None else flags[name] for name in options}
    for name in _WRITTEN & merged.keys():
        place = merged[name]
        if config is not None and place is not None and Path(place).resolve() == config.resolve():
            raise InvalidArgument(f"`--{name}` {place} is also `--config`, which would be overwritten.")
    return merged


def _check(config: Path, name: str, option: Any, value: Any) -> None:
    """An option of the TOML file has the kind that its flag takes."""
    flag = get_args(get_args(option)[0])[0]
    kind: Any = {int: int, float: (int, float), str: str, Path: str, bool: bool}.get(flag, (dict, list))
    kind = (int, str) if option is Position else kind
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = _NAMES.get(kind, "a table or a list of NAME=VALUE")
        raise InvalidArgument(f"{config}: `{name}` must be {words} (got {value!r}).")
    if name in _POSITIVE and not value > 0:
        raise InvalidArgument(f"{config}: `{name}` must be positive (got {value!r}).")
    if name in ("price", "max_cost", "budget", "principal_price") and not value >= 0:
        raise InvalidArgument(f"{config}: `{name}` must not be negative (got {value!r}).")
