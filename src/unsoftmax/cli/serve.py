"""`unsoftmax serve`: a reference model over the Open Inference Protocol, for practice."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from unsoftmax.cli import settings
from unsoftmax.cli.exits import one_sentence
from unsoftmax.errors import InvalidArgument


def serve(
    model: Annotated[Path | None, typer.Argument(help="A saved model or recovery; a random head if none.")] = None,
    dim: Annotated[int, typer.Option(help="Token dimension of the random head.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the random head.", min=0)] = 0,
    name: Annotated[str, typer.Option(help="Name of the model on the server.")] = "model",
    host: Annotated[str, typer.Option(help="Address to listen on; loopback unless told.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8080,
    max_batch: Annotated[int, typer.Option(help="Sequences per request.", min=1)] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print where it listens as one line of JSON.")] = False,
    debug: settings.Debug = False,
) -> None:
    """Serve a reference model over the Open Inference Protocol v2, so that extraction can be practised.

    Example: unsoftmax serve --dim 32, then in another terminal
    unsoftmax recover http://127.0.0.1:8080/v2/models/model
    """
    import unsoftmax as us

    with one_sentence(debug, as_json):
        try:
            import uvicorn

            from unsoftmax.serving.open_inference import Service, application

            served = us.models.SingleHead.random(dim, norm=2.0, seed=seed) if model is None else us.models.load(model)
            app = application(Service(served, name, max_batch))
        except ImportError as error:
            raise InvalidArgument('serving needs starlette and uvicorn: pip install "unsoftmax[serve]".') from error
        with _listening(host, port) as listener:
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}"
            target = f"{url}/v2/models/{quote(name, safe='')}"
            facts = {"url": url, "model": name, "pid": os.getpid(), "target": target}
            words = f"serving {type(served).__name__} (dim {served.dim}) as {name!r} at {url}\nTARGET: {target}"
            typer.echo(json.dumps(facts | {"class": type(served).__name__, "dim": served.dim}) if as_json else words)
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that already takes connections, so that whoever reads the address may use it at once."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InvalidArgument(
            f"{host} port {port} cannot be used ({error.strerror or error}); choose another --port, 0 takes a free one."
        ) from error
    return listener
