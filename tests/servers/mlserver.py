"""MLServer on loopback with a small head, in a virtual environment and a process group of its own.

Its pins clash with newer packages, so it is never installed beside unsoftmax. The environment is made once, in
`.venv-mlserver`, or taken from the variable MLSERVER_PYTHON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

ROOT = Path(__file__).parents[2]


def environment() -> Path:
    """Python of an environment with MLServer; made if there is none."""
    if "MLSERVER_PYTHON" in os.environ:
        return Path(os.environ["MLSERVER_PYTHON"])
    folder = ROOT / ".venv-mlserver"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "mlserver>=1.6,<2"], check=True)
        (folder / ".ready").touch()
    return python


class MLServer:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    @property
    def received(self) -> int:
        """Sequences the model has received, as it counts them."""
        path = self.folder / "received"
        return sum(map(int, path.read_text().split())) if path.exists() else 0


@contextmanager
def mlserver(folder: Path, W: np.ndarray, v: np.ndarray) -> Iterator[MLServer]:
    ports = [_free() for _ in range(3)]
    np.save(folder / "W.npy", W)
    np.save(folder / "v.npy", v)
    shutil.copy(Path(__file__).with_name("mlserver_model.py"), folder / "head_model.py")
    tensor = {"datatype": "FP64", "shape": [-1, -1, len(v)]}
    settings = {"host": "127.0.0.1", "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2]}
    model = {
        "name": "head",
        "implementation": "head_model.Head",
        "parameters": {"uri": str(folder)},
        "inputs": [{"name": "tokens", **tensor}],
        "outputs": [{"name": "answers", "datatype": "FP64", "shape": [-1]}],
    }
    (folder / "settings.json").write_text(json.dumps({**settings, "parallel_workers": 0}))
    (folder / "model-settings.json").write_text(json.dumps(model))
    command = [str(environment()), "-m", "mlserver.cli.main", "start", str(folder)]
    # Its own environment: nothing of this one may leak into the imports.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PYTHONPATH"] = str(folder)
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
            env={**clean, "PYTHONPATH": str(folder)},
        )
    try:
        url = f"http://127.0.0.1:{ports[0]}"
        _until_ready(url, process, folder)
        yield MLServer(url, folder)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until_ready(url: str, process: subprocess.Popen, folder: Path) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{url}/v2/models/head/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
