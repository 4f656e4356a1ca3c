"""Errors as one sentence and an exit code: 2 usage, 3 not recovered, 4 budget, 5 target, 10 too cheap, 11 differs,
12 undecided, 13 a claim does not hold, 130 Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from unsoftmax import errors


class Exit(IntEnum):
    """Exit codes; 0 is success, 1 is left to crashes."""

    USAGE = 2
    """A call or a file that cannot be used; argument parsers use 2 too."""

    NOT_RECOVERED = 3
    """A target that is outside the class, not identifiable, or not reachable inside its domain."""

    BUDGET = 4
    """A budget of queries that ran out."""

    TARGET = 5
    """A target that failed to answer."""

    TOO_CHEAP = 10
    """An audit that found a close copy below the price required. Codes from 10 to 13 are verdicts, not errors."""

    DIFFERS = 11
    """A comparison that found another model than the reference."""

    UNDECIDED = 12
    """A comparison whose budget did not decide."""

    FALLEN = 13
    """Experiments of which a claim does not hold."""

    INTERRUPTED = 130
    """Ctrl-C: 128 and the number of the signal, 2, as shells report it."""


def code_of(error: errors.UnsoftmaxError) -> Exit:
    """Exit code of a typed error."""
    match error:
        case errors.BudgetExceeded():
            return Exit.BUDGET
        case errors.OracleError():
            return Exit.TARGET
        case errors.NotIdentifiable() | errors.ModelMismatch() | errors.DomainError():
            return Exit.NOT_RECOVERED
        case _:
            return Exit.USAGE


@contextmanager
def one_sentence(debug: bool = False, as_json: bool = False) -> Iterator[None]:
    """Turn typed errors into a sentence on standard error (or JSON) and their exit code; `debug` lets them through."""
    try:
        yield
    except errors.UnsoftmaxError as error:
        if debug:
            raise
        say(error, as_json)
        raise typer.Exit(code_of(error)) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; a run with --ledger (an audit with --folder) continues where it stopped.", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except OSError as error:
        if debug:
            raise
        what = "an address" if error.filename is None else str(error.filename)
        say(errors.InvalidArgument(f"{what} cannot be used ({error.strerror or error})."), as_json)
        raise typer.Exit(Exit.USAGE) from None


def say(error: errors.UnsoftmaxError, as_json: bool) -> None:
    """The error for people, or as JSON on standard output."""
    kind = type(error).__name__
    message = " ".join([str(error), *getattr(error, "__notes__", ())])
    if as_json:
        data: dict[str, object] = {"error": kind, "code": error.code.value, "message": message}
        if error.recovery is not None:
            data |= {"status": error.recovery.status.value, "billed": error.recovery.usage.billed}
        typer.echo(json.dumps(data))
        return
    typer.echo(f"{kind}: {plain(message)}", err=True)
    if isinstance(error, errors.BudgetExceeded) and error.recovery is not None and error.recovery.usage.billed:
        typer.echo(f"{error.recovery.usage.billed} queries were billed. {error.recovery.status.remedy}", err=True)


def plain(value: object) -> str:
    """Text for a terminal: what came from outside may hold control characters."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(value))
