"""`unsoftmax serve` in a process group of its own, on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx


class Server:
    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def received(self) -> int:
        """Sequences the server has received, as it counts them."""
        stats = httpx.get(f"{self.url}/v2/models/model/stats").json()
        return stats["model_stats"][0]["inference_count"]


@contextmanager
def reference_server(*options: str) -> Iterator[Server]:
    command = [sys.executable, "-c", "from unsoftmax_command import main; main()", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the server said {line!r}"
        # The socket is bound before the line is printed: a connection waits until the server accepts it.
        yield Server(found.group())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
