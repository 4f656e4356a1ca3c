"""Servers that are not ours, each in a virtual environment and a process group of its own, on loopback.

Their pins clash with newer packages, so they are never installed beside unsoftmax. An environment is made once, in
`.venv-mlserver`, `.venv-triton` or `.venv-infinity`, or taken from the variable MLSERVER_PYTHON, TRITON_PYTHON or
INFINITY_PYTHON.
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
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np

ROOT = Path(__file__).parents[2]
MODELS = Path(__file__).parent


def environment(name: str, *requirements: str) -> Path:
    """Python of an environment with the server; made if there is none."""
    if f"{name.upper()}_PYTHON" in os.environ:
        return Path(os.environ[f"{name.upper()}_PYTHON"])
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
        (folder / ".ready").touch()
    return python


class Server:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    @property
    def received(self) -> int:
        """Sequences the model has received, as it counts them."""
        path = self.folder / "received"
        return sum(map(int, path.read_text().split())) if path.exists() else 0


@contextmanager
def mlserver(folder: Path, W: np.ndarray, v: np.ndarray) -> Iterator[Server]:
    ports = [free_port() for _ in range(3)]
    _weights(folder, W, v)
    shutil.copy(MODELS / "mlserver_model.py", folder / "head_model.py")
    settings = {"host": "127.0.0.1", "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2]}
    model = {
        "name": "head",
        "implementation": "head_model.Head",
        "parameters": {"uri": str(folder)},
        "inputs": [{"name": "tokens", "datatype": "FP64", "shape": [-1, -1, len(v)]}],
        "outputs": [{"name": "answers", "datatype": "FP64", "shape": [-1]}],
    }
    (folder / "settings.json").write_text(json.dumps({**settings, "parallel_workers": 0}))
    (folder / "model-settings.json").write_text(json.dumps(model))
    command = [environment("mlserver", "mlserver>=1.6,<2"), "-m", "mlserver.cli.main", "start", folder]
    with running(command, folder, ports[0], {"PYTHONPATH": str(folder)}) as server:
        yield server


@contextmanager
def triton(folder: Path, W: np.ndarray, v: np.ndarray) -> Iterator[Server]:
    """The server and its Python backend as nvidia-pytriton packs them."""
    port = free_port()
    _weights(folder, W, v)
    python = environment("triton", "nvidia-pytriton>=0.5")
    find = "import numpy, pytriton, sys; print(pytriton.__path__[0], numpy.__path__[0], '%d.%d' % sys.version_info[:2])"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.split()
    package, numpy, version = Path(found[0]), Path(found[1]), found[2]
    binaries = package / "tritonserver"
    shutil.copytree(binaries / "backends", folder / "backends")
    stub = "triton_python_backend_stub"
    shutil.copy(binaries / "python_backend_stubs" / version / stub, folder / "backends" / "python" / stub)
    model = folder / "models" / "head"
    (model / "1").mkdir(parents=True)
    shutil.copy(MODELS / "triton_model.py", model / "1" / "model.py")
    (model / "config.pbtxt").write_text(
        'name: "head" backend: "python" max_batch_size: 64\n'
        f'input [{{ name: "tokens" data_type: TYPE_FP64 dims: [-1, {len(v)}] }}]\n'
        'output [{ name: "answers" data_type: TYPE_FP64 dims: [1] }]\n'
        "instance_group [{ kind: KIND_CPU count: 1 }]\n"
    )
    command = [
        binaries / "bin" / "tritonserver",
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={folder / 'backends'}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
    ]
    libraries = ":".join(str(path) for path in package.parent.glob("nvidia_pytriton*.libs"))
    (folder / "packages").write_text(str(numpy.parent))
    with running(command, folder, port, {"LD_LIBRARY_PATH": libraries}) as server:
        yield server


@contextmanager
def infinity(folder: Path, model: Path) -> Iterator[Server]:
    """An embedding server with a sentence-transformers folder, in float32 on the CPU; it needs numpy 1."""
    port = free_port()
    python = environment("infinity", "torch==2.13.0", "infinity-emb[torch,server]==0.0.78")
    command = [python.parent / "infinity_emb", "v2", "--model-id", model, "--served-model-name", "minilm"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--engine", "torch", "--device", "cpu"]
    command += ["--dtype", "float32", "--no-bettertransformer", "--no-model-warmup", "--no-compile"]
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    with running(command, folder, port, quiet, "health", 300.0) as server:
        yield server


def _weights(folder: Path, W: np.ndarray, v: np.ndarray) -> None:
    np.save(folder / "W.npy", W)
    np.save(folder / "v.npy", v)


@contextmanager
def running(
    command: list[Path | str],
    folder: Path,
    port: int,
    variables: dict[str, str],
    ready: str = "v2/models/head/ready",
    patience: float = 30.0,
) -> Iterator[Server]:
    """A server as a process of its own, once `ready` is answered; given up after `patience` seconds."""
    # Its own environment: nothing of this one may leak into the imports.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
            env={**clean, **variables},
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _until_ready(f"{url}/{ready}", process, folder / "log", patience)
        yield Server(url, folder)
    finally:
        with suppress(ProcessLookupError):  # it ended by itself; the assertion above says why
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until_ready(url: str, process: subprocess.Popen, log: Path, patience: float) -> None:
    for _ in range(int(10 * patience)):
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-3000:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
