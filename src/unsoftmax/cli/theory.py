"""`unsoftmax theory`: closed forms on the command line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Annotated

import typer

from unsoftmax.cli import flags, settings
from unsoftmax.cli.exits import one_sentence


def theory(
    name: Annotated[str | None, typer.Argument(help="Which closed form; all are listed if none is named.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments, NAME=VALUE, e.g. d=64.")] = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Evaluate the closed forms: query counts, unknowns, tolerances.

    Example: unsoftmax theory low_rank_unknowns d=4096 r=128
    """
    from unsoftmax import theory as forms
    from unsoftmax.errors import InvalidArgument

    own = {n: f for n, f in vars(forms).items() if inspect.isfunction(f) and f.__module__.startswith(forms.__name__)}
    known = {n: f for n, f in own.items() if not n.startswith("_")}
    with one_sentence(debug, as_json):
        if name is None:
            about = {f"{form}{_takes(function)}": _first_line(function) for form, function in known.items()}
            typer.echo(json.dumps(about) if as_json else "\n".join(f"{form}: {words}" for form, words in about.items()))
            return
        if name not in known:
            raise InvalidArgument(f"{name} is not a closed form; run `unsoftmax theory` for the list.")
        try:
            value = known[name](**settings.parameters_from(arguments))
        except TypeError as error:
            raise InvalidArgument(f"{error}; it takes {_takes(known[name])}.".replace("()", "", 1)) from error
        typer.echo(json.dumps({name: value}, default=str) if as_json else str(value))


def _takes(function: Callable[..., object]) -> str:
    return str(inspect.signature(function)).replace("'", "")


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").splitlines()[0]
