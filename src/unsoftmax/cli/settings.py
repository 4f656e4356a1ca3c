"""What options mean: the oracle, the learner, the budget and the files that they ask for, and the command again."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from unsoftmax import learners
from unsoftmax.errors import InvalidArgument
from unsoftmax.oracles.metering import Budget

ORACLE_OPTIONS = ("dim", "kind", "tolerance", "max_norm", "max_length", "max_batch", "part", "position", "link")


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


_SILENT = (
    "keep_tokens",
    "output",
    "sarif",
    "cyclonedx",
    "folder",
    "ledger",
    "workers",
    "fail_if_cost_below",
    "monitor",
    "report",
)
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


def writable(options: dict[str, Any], *names: str, **read: Any) -> None:
    """Refuse files that cannot be written before anything is asked: an answer that was paid for must find its place.

    Nor may one overwrite what is `read`, by its name (target="head.safetensors"), or another. A page needs what draws
    it.
    """
    taken: dict[Path, str] = {}
    for what, place in read.items():
        if place is None or str(place).startswith(("http://", "https://")):
            continue
        held = str(place).rpartition(":")[0]
        taken[Path(held if held.endswith(".py") else place).resolve()] = f"the {what}"
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


@contextmanager
def threads(count: int | None) -> Iterator[Executor | None]:
    """An executor of so many threads; None for one."""
    if count is None or count == 1:
        yield None
        return
    with ThreadPoolExecutor(count) as executor:
        yield executor


def write_files(result: Any, options: dict[str, Any], **makers: Callable[[Any], str]) -> None:
    """Save a result as `--output` says, and write what each maker makes of it as the option of its name does."""
    if options["output"]:
        result.save(options["output"])
    for name, make in makers.items():
        if options[name]:
            from unsoftmax.report import write

            write(make(result), options[name])


def say_files(options: dict[str, Any]) -> None:
    """Where the files are that were written."""
    for name in ("output", "report", "sarif", "cyclonedx"):
        if options.get(name):
            typer.echo(f"{name}: {options[name]}")


def page_of(recovery: Any, truth: Any = None) -> str:
    """The page of a recovery, which is imported where one is asked for: charts take a while to load."""
    from unsoftmax.report import recovery_page

    return recovery_page(recovery, truth)


def facts(recovery: Any) -> dict[str, Any]:
    """What every command that recovers prints as JSON."""
    claims = [{**asdict(claim), "holds": claim.holds} for claim in recovery.certificate.claims]
    return {"status": recovery.status.value, "model": type(recovery.model).__name__, "claims": claims}
