"""`unsoftmax serve`: a reference model over the Open Inference Protocol, for practice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[Path | None, typer.Argument(help="A saved model or recovery; a random head if none.")] = None,
    dim: Annotated[int, typer.Option(help="Token dimension of the random head.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the random head.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the model on the server.")] = "model",
    host: Annotated[str, typer.Option(help="Address to listen on; loopback unless told.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8080,
    max_batch: Annotated[int, typer.Option(help="Sequences per request.", min=1)] = 256,
) -> None:
    """Serve a reference model over the Open Inference Protocol v2, so that extraction can be practised.

    Example: unsoftmax serve --dim 32, then us.recover(us.adapters.http("http://127.0.0.1:8080", "model"))
    """
    import socket

    import unsoftmax as us
    from unsoftmax.serving import Service, application

    try:
        import uvicorn

        served = us.models.SingleHead.random(dim, norm=2.0, seed=seed) if model is None else us.models.load(model)
    except ImportError as error:
        raise typer.BadParameter('serving needs starlette and uvicorn: pip install "unsoftmax[serve]".') from error
    except us.errors.UnsoftmaxError as error:
        raise typer.BadParameter(str(error)) from error
    app = application(Service(served, name, max_batch))
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        where = f"http://{host}:{listener.getsockname()[1]}"
        typer.echo(f"serving {type(served).__name__} (dim {served.dim}) as {name!r} at {where}")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
