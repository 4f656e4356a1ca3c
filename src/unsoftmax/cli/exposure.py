"""`unsoftmax exposure URL`: which doors of a server are open."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from unsoftmax.cli import flags
from unsoftmax.cli.exits import one_sentence, plain


def exposure(
    url: Annotated[str, typer.Argument(metavar="URL", help="Root of the server, such as http://127.0.0.1:8000.")],
    model: Annotated[str, typer.Option(help="Name of the model on the server.")] = "model",
    may_test: Annotated[
        bool, typer.Option("--i-may-test-this", help="I own this server or am permitted to test it.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Requests per second at most.", min=0.001)] = 5.0,
    token_env: flags.TokenEnv = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Say which doors of a server are open, what each gives away and what closes it: some 20 to 60 read-only requests.

    Only for servers you own or may test; addresses other than this machine need --i-may-test-this.

    Example: unsoftmax exposure http://127.0.0.1:8000 --model NAME
    """
    from unsoftmax.exposure import exposure as survey

    with one_sentence(debug, as_json):
        found = survey(url, model, allowed=may_test, token_variable=token_env or "OPENAI_API_KEY", rate=rate)
        typer.echo(json.dumps(found.as_dict()) if as_json else plain(str(found)))
