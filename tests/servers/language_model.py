"""Services of `unsoftmax serve` in this process, on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import uvicorn
from starlette.applications import Starlette

from unsoftmax.serving.language_model import LanguageService, application


def language_server(service: LanguageService) -> AbstractContextManager[str]:
    return served(application(service))


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """The address of an application on loopback."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()
