"""Kinds of processor that this machine can stand in for, and commands run as on each of them.

OpenBLAS and NumPy choose code by the processor they find, and its last digits differ. Both can be told to take older
code: `python -m scripts.kernels -- pytest tests/solvers` runs a command once for each of three kinds, and ends with an
error if one of the runs does. Kinds are x86-64; elsewhere the machine stands for itself alone. Two threads add up in
another order than one does: `--threads 2` runs the command with them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

FEATURES = {"Prescott": "SSE3", "Sandybridge": "AVX", "Haswell": "AVX2", "Zen": "AVX2", "SkylakeX": "AVX512F"}
"""OpenBLAS's name of a kind, and the feature it needs; the oldest that NumPy runs on at all stands first."""

THREE = ("Prescott", "Haswell", "SkylakeX")
"""One for each width of vectors: the others share their code but for the order of loops (Zen runs Haswell's)."""

_TURNS = {kind: turn for turn, kind in enumerate((*THREE, *(kind for kind in FEATURES if kind not in THREE)))}
"""Which share of the cases is a kind's own."""


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

WAITING = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads without work sleep: OpenBLAS's (NumPy's and SciPy's have a pool each) and OpenMP's (torch's).

By themselves they stay awake for the next product, OpenBLAS's for 2^28 cycles, on cores that others need; 4 is the
least exponent it takes. No byte of a result depends on it. 43 heavy tests, in seconds of wall clock and of processor
time:

| | alone | beside a process that fills the other core |
|---|---|---|
| one thread | 30, 30 | 30, 30 |
| two threads, asleep | 29, 33 | 54, 51 |
| two threads, awake | 64, 83 | 135, 123 |
"""


def available() -> list[str]:
    """The kinds this machine has the instructions for; empty where kinds have no names."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    from numpy._core._multiarray_umath import __cpu_features__ as found

    return [kind for kind, feature in FEATURES.items() if found.get(feature)]


def environment(kind: str, base: Mapping[str, str] | None = None, threads: int | None = None) -> dict[str, str]:
    """Variables under which OpenBLAS and NumPy take the code of a kind, with so many threads; None: as in `base`."""
    from numpy._core._multiarray_umath import __cpu_dispatch__ as optional

    wide = [name for name in optional if "512" in name or name == "X86_V4"]
    off = [] if kind == "SkylakeX" else wide if FEATURES[kind] == "AVX2" else list(optional)
    return {
        **(os.environ if base is None else base),
        "OPENBLAS_CORETYPE": kind,
        "NPY_DISABLE_CPU_FEATURES": " ".join(off),
        **({name: str(threads) for name in _THREADS} | WAITING if threads else {}),
    }


def openblas() -> ctypes.CDLL | None:
    """The OpenBLAS that NumPy computes with; None where it brings none."""
    import numpy

    for library in sorted(Path(numpy.__file__).parent.parent.glob("numpy.libs/*openblas*")):
        found = ctypes.CDLL(str(library))
        if hasattr(found, "scipy_openblas_get_corename64_"):
            return found
    return None


def itself() -> str | None:
    """The one of the three kinds whose code OpenBLAS takes here unasked; None where NumPy brings no OpenBLAS.

    An AMD processor with AVX-512 is a Haswell to it, so the newest kind of a machine is not always the one it is.
    """
    library = openblas()
    if library is None:
        return None
    name = library.scipy_openblas_get_corename64_
    name.restype = ctypes.c_char_p
    core = name().decode()
    return {"Zen": "Haswell"}.get(core, core if core in THREE else THREE[-1])


def wanted(kinds: str) -> list[str]:
    """The kinds of this machine that are meant by names, "all", "three", or "others": without what it is by itself."""
    here = available()
    three = [kind for kind in THREE if kind in here]
    groups = {"all": here, "three": three}
    if kinds == "others":
        return [kind for kind in three if kind != itself()]
    return groups[kinds] if kinds in groups else [kind for kind in kinds.split(",") if kind in here]


def share_of(kind: str, test: str, cases: int, share: int) -> set[int]:
    """Cases of a test that are run as on a kind: one in `share`, at least one; `share` kinds in turn run all."""
    turn = crc32(test.encode()) + _TURNS.get(kind, 0)
    return {i for i in range(cases) if (i + turn) % share == 0} or {turn % cases}


def main() -> int:
    """Run the command under every kind asked for that the machine has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="three", help=f"of {', '.join(FEATURES)}; or all, three, others")
    parser.add_argument("--threads", type=int, help="of BLAS, as many as there are cores at most; unasked, as they are")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = [part for part in arguments.command if part != "--"]
    status = 0
    for kind in wanted(arguments.kinds):
        sys.stderr.write(f"as on {kind}\n")
        variables = environment(kind, threads=arguments.threads)
        status = subprocess.run([sys.executable, "-m", *command], env=variables, check=False).returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main())
