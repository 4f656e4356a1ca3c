"""Options that several commands share, and the TOML file that can hold them all (flags override it)."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax import learners
from unsoftmax.errors import InvalidArgument
from unsoftmax.oracles.metering import Budget

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

_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("seed", "budget", "workers", "dim", "max_length", "max_batch"), int),
    **dict.fromkeys(
        (
            *("price", "max_cost", "principal_price", "keep_above", "fail_if_cost_below"),
            *("rate", "send_rate", "tolerance", "max_norm", "alpha", "smallest"),
        ),
        (int, float),
    ),
    **dict.fromkeys(
        (
            "learner",
            "kind",
            "ledger",
            "output",
            "report",
            "folder",
            "sarif",
            "cyclonedx",
            "token_env",
            "truth",
            "part",
            "link",
            "arithmetic",
            "monitor",
            "api",
            "model",
        ),
        str,
    ),
    "position": (int, str),
    "verify": bool,
    "explain": bool,
    **dict.fromkeys(("set", "wire"), (dict, list)),
}
_POSITIVE = ("workers", "max_batch", "max_length", "dim", "rate", "send_rate", "keep_above")
_NAMES = {
    int: "a whole number", bool: "true or false", str: "text", (int, float): "a number",
    (int, str): "an index, first or last",
}  # fmt: skip

ORACLE_OPTIONS = ("dim", "kind", "tolerance", "max_norm", "max_length", "max_batch", "part", "position", "link")


def merged(config: Path | None, **flags: Any) -> dict[str, Any]:
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
        unknown = set(found) - set(flags)
        if unknown:
            raise InvalidArgument(
                f"{config} has unknown options {', '.join(sorted(unknown))}; known are {', '.join(flags)}."
            )
        for name, value in found.items():
            _check(config, name, value)
    return {name: found.get(name) if value is None else value for name, value in flags.items()}


def _check(config: Path, name: str, value: Any) -> None:
    """An option of the TOML file has the kind that its flag takes."""
    kind: Any = _KINDS[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = _NAMES.get(kind, "a table or a list of NAME=VALUE")
        raise InvalidArgument(f"{config}: `{name}` must be {words} (got {value!r}).")
    if name in _POSITIVE and not value > 0:
        raise InvalidArgument(f"{config}: `{name}` must be positive (got {value!r}).")
    if name in ("price", "max_cost", "budget", "principal_price") and not value >= 0:
        raise InvalidArgument(f"{config}: `{name}` must not be negative (got {value!r}).")


def oracle_options(options: dict[str, Any], rate: str = "rate") -> dict[str, Any]:
    """Those of the options that describe the oracle and were given; `rate` names the one that paces a server."""
    found = {name: options[name] for name in ORACLE_OPTIONS if options.get(name) is not None}
    if re.fullmatch(r"[+-]?\d+", str(found.get("position"))):
        found["position"] = int(found["position"])
    if options.get(rate) is not None:
        if not options[rate] > 0:
            raise InvalidArgument(f"`--{rate.replace('_', '-')}` must be positive (got {options[rate]:g}).")
        found["rate"] = options[rate]
    found |= {name: options[name] for name in ("api", "model") if options.get(name) is not None}
    if options.get("wire") is not None:
        found["wire"] = parameters_from(options["wire"], "--wire")
    variable = options.get("token_env")
    if variable is not None:
        # What was passed is not repeated: it may be the token itself.
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable) or variable not in os.environ:
            raise InvalidArgument(
                "`--token-env` must name an environment variable that is set; it takes the name, not the token."
            )
        found["token_variable"] = variable
    return found


def budget_of(options: dict[str, Any]) -> int | Budget | None:
    """The budget of the flags: queries alone, or with a price and what may be spent."""
    if options["max_cost"] is None:
        limit: int | None = options["budget"]
        return limit
    if not options["price"]:
        raise InvalidArgument("`--max-cost` needs `--price`: without a price queries cost nothing.")
    return Budget(queries=options["budget"], cost=options["max_cost"], price_per_query=options["price"])


_SILENT = ("output", "sarif", "cyclonedx", "folder", "ledger", "workers", "fail_if_cost_below", "monitor", "report")
"""Options that do not change the result; `report` comes last."""


def command(name: str, target: str | tuple[str, ...] | None, options: dict[str, Any]) -> str:
    """The command that gives this result again, as it can be pasted into a shell."""
    words = ["unsoftmax", name, *([] if target is None else [target] if isinstance(target, str) else target)]
    given = {key: value for key, value in options.items() if value is not None and key not in _SILENT}
    for key, value in ({"seed": 0} | given).items():
        flag = f"--{key.replace('_', '-')}"
        if key in ("set", "wire"):
            pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
            words += [word for pair in pairs for word in (flag, str(pair))]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{key}")
        else:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join([*words, "--report", str(options.get("report") or "page.html")])


def writable(options: dict[str, Any], *names: str, target: str | None = None) -> None:
    """Refuse files that cannot be written before anything is asked: an answer that was paid for must find its place.

    Nor may one overwrite the target, or another. A page needs what draws it.
    """
    taken: dict[Path, str] = {}
    if target is not None and not target.startswith(("http://", "https://")):
        held = target.rpartition(":")[0]
        taken[Path(held if held.endswith(".py") else target).resolve()] = "the target"
    for name in names:
        if options[name] is None:
            continue
        path = Path(options[name])
        if path.resolve() in taken:
            raise InvalidArgument(
                f"`--{name}` {path} is also {taken[path.resolve()]}, which would be overwritten; give it a name of its "
                "own."
            )
        taken[path.resolve()] = f"`--{name}`"
        if name == "report":
            from unsoftmax.report.document import require_drawing

            require_drawing()
        if not path.parent.is_dir():
            raise InvalidArgument(f"`--{name}` {path} cannot be written: there is no folder {path.parent}.")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InvalidArgument(f"`--{name}` {path} cannot be written: it is a folder, or not yours to write.")


def learner_named(name: str | None, parameters: dict[str, Any] | None = None) -> Any:
    """A learner by class name with its hyper-parameters; None for "auto"."""
    if name is None or name == "auto":
        return None
    cls = getattr(learners, name, None)
    if not isinstance(cls, type) or not hasattr(cls, "program"):
        known = [n for n in learners.__all__ if hasattr(getattr(learners, n), "program") and n != "Learner"]
        raise InvalidArgument(f"`--learner` must be auto or one of {', '.join(known)} (got {name}).")
    try:
        return cls(**(parameters or {}))
    except TypeError as error:
        raise InvalidArgument(f"{name} does not take these parameters: {error}.") from error


def parameters_from(pairs: list[str] | dict[str, Any] | None, flag: str = "--set") -> dict[str, Any]:
    """NAME=VALUE pairs with TOML values, e.g. rank=8 or method="nuclear"; a table of a TOML file is taken as it is."""
    if isinstance(pairs, dict):
        return pairs
    parameters: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = str(pair).partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgument(f"`{flag}` takes NAME=VALUE (got {pair}).")
        try:
            parameters[name] = tomllib.loads(f"x = {value}")["x"]
        except RecursionError as error:
            raise InvalidArgument(f"`{flag} {name}` nests lists too deeply.") from error
        except tomllib.TOMLDecodeError:
            parameters[name] = value
    return parameters
