"""`unsoftmax serve`: a reference model behind the wires that servers speak, for practice."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from unsoftmax.cli import flags
from unsoftmax.cli.exits import one_sentence
from unsoftmax.errors import InvalidArgument


def serve(
    model: Annotated[Path | None, typer.Argument(help="A saved model or recovery; a random head if none.")] = None,
    dim: Annotated[int, typer.Option(help="Token dimension of the random model.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the random model.", min=0)] = 0,
    name: Annotated[str, typer.Option(help="Name of the model on the server.")] = "model",
    host: Annotated[str, typer.Option(help="Address to listen on; loopback unless told.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8080,
    max_batch: Annotated[int, typer.Option(help="Sequences per request.", min=1)] = 256,
    language_model: Annotated[
        bool,
        typer.Option(
            "--language-model",
            help="Serve a small random Llama over the wires of OpenAI, llama.cpp, SGLang and TEI instead.",
        ),
    ] = False,
    vocabulary: Annotated[int, typer.Option(help="Tokens of that language model.", min=2)] = 512,
    layers: Annotated[int, typer.Option(help="Layers of that language model.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print where it listens as one line of JSON.")] = False,
    debug: flags.Debug = False,
) -> None:
    """Serve a model on loopback, so that extraction can be practised offline.

    Example: unsoftmax serve --dim 32, then in another terminal
    unsoftmax recover http://127.0.0.1:8080/v2/models/model

    Example: unsoftmax serve --language-model, then
    unsoftmax recover http://127.0.0.1:8080/v1 --api openai --model model --wire vocabulary=512
    """
    with one_sentence(debug, as_json):
        try:
            import uvicorn

            app, facts = (
                _language(dim, vocabulary, layers, seed, name)
                if language_model
                else _plain(model, dim, seed, name, max_batch)
            )
        except ImportError as error:
            raise InvalidArgument('serving needs starlette and uvicorn: pip install "unsoftmax[serve]".') from error
        with _listening(host, port) as listener:
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listener.getsockname()[1]}"
            target = f"{url}{facts.pop('path')}"
            about = {"url": url, "model": name, "pid": os.getpid(), "target": target} | facts
            words = f"serving {facts['class']} (dim {facts['dim']}) as {name!r} at {url}\nTARGET: {target}"
            typer.echo(json.dumps(about) if as_json else words)
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _plain(model: Path | None, dim: int, seed: int, name: str, max_batch: int) -> tuple[Any, dict[str, Any]]:
    import unsoftmax as us
    from unsoftmax.serving.open_inference import Service, application

    served = us.models.SingleHead.random(dim, norm=2.0, seed=seed) if model is None else us.models.load(model)
    path = f"/v2/models/{quote(name, safe='')}"
    return application(Service(served, name, max_batch)), {
        "path": path,
        "class": type(served).__name__,
        "dim": served.dim,
    }


def _language(dim: int, vocabulary: int, layers: int, seed: int, name: str) -> tuple[Any, dict[str, Any]]:
    from unsoftmax.serving.language_model import LanguageService, application
    from unsoftmax.serving.llama import Llama

    if dim % 16:
        raise InvalidArgument(f"`--dim` must be a multiple of 16 for a Llama of 8 heads (got {dim}).")
    served = Llama.random(dim, vocabulary, layers, seed=seed)
    facts = {"path": "/v1", "class": "Llama", "dim": dim, "vocabulary": vocabulary}
    return application(LanguageService(served, name)), facts


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
