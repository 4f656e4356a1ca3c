"""Options that several commands share, and the TOML file that can hold them all (flags override it)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from unsoftmax import learners
from unsoftmax.errors import InvalidArgument

Seed = Annotated[int | None, typer.Option(help="Seed of the learner and of the verification (default 0).")]
BudgetOption = Annotated[int | None, typer.Option("--budget", help="Most queries that may be billed, all included.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with any of these options; flags override it.")]
Ledger = Annotated[Path | None, typer.Option(help="Keep every answer in this file; the same command then resumes.")]
Workers = Annotated[int | None, typer.Option(help="Threads that ask the target at the same time (default 1).", min=1)]
Price = Annotated[float | None, typer.Option(help="Price of one query, for cost budgets and reports.", min=0)]
MaxNorm = Annotated[float | None, typer.Option(help="Largest token norm the target accepts.")]
MaxLength = Annotated[int | None, typer.Option(help="Longest sequence the target accepts.")]
MaxBatch = Annotated[int | None, typer.Option(help="Most sequences per call.")]
Tolerance = Annotated[float | None, typer.Option(help="Answers are within this of the model's value.")]
Dim = Annotated[int | None, typer.Option(help="Token dimension, where the target does not say it.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="value, approximate or membership.")]

_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("seed", "budget", "workers", "dim", "max_length", "max_batch"), int),
    **dict.fromkeys(("price", "max_cost", "rate", "tolerance", "max_norm", "fail_if_cost_below"), (int, float)),
    **dict.fromkeys(("learner", "kind", "ledger", "output", "report", "folder", "sarif"), str),
}

ORACLE_OPTIONS = ("dim", "kind", "tolerance", "max_norm", "max_length", "max_batch")


def merged(config: Path | None, **flags: Any) -> dict[str, Any]:
    """Options from the TOML file, overridden by flags that were given (None means not given)."""
    found: dict[str, Any] = {}
    if config is not None:
        try:
            found = tomllib.loads(config.read_text())
        except OSError as error:
            raise InvalidArgument(f"{config} cannot be read ({error.strerror or error}).") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{config} is not TOML ({error}).") from error
        found = {name.replace("-", "_"): value for name, value in found.items()}
        unknown = set(found) - set(flags)
        if unknown:
            raise InvalidArgument(
                f"{config} has unknown options {', '.join(sorted(unknown))}; known are {', '.join(flags)}."
            )
        for name, value in found.items():
            kind = _KINDS.get(name)
            if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InvalidArgument(f"{config}: `{name}` must be a number or text as its flag takes (got {value!r}).")
            if name in ("workers", "max_batch", "max_length") and value < 1:
                raise InvalidArgument(f"{config}: `{name}` must be at least 1 (got {value!r}).")
    return {name: found.get(name) if value is None else value for name, value in flags.items()}


def oracle_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that describe the oracle and were given."""
    return {name: options[name] for name in ORACLE_OPTIONS if options.get(name) is not None}


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


def parameters_from(pairs: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs with TOML values, e.g. rank=8 or method="nuclear"."""
    parameters: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgument(f"`--set` takes NAME=VALUE (got {pair}).")
        try:
            parameters[name] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            parameters[name] = value
    return parameters
