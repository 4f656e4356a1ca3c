"""Kinds of processor that this machine can stand in for, and commands run as on each of them.

OpenBLAS and NumPy choose code by the processor they find, and its last digits differ. Both can be told to take older
code: `python -m scripts.kernels -- pytest tests/solvers` runs a command once for each of three kinds, and ends with an
error if one of the runs does. Kinds are x86-64; elsewhere the machine stands for itself alone.
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


def available() -> list[str]:
    """The kinds this machine has the instructions for; empty where kinds have no names."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    from numpy._core._multiarray_umath import __cpu_features__ as found

    return [kind for kind, feature in FEATURES.items() if found.get(feature)]


def environment(kind: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables under which OpenBLAS and NumPy take the code of a kind."""
    from numpy._core._multiarray_umath import __cpu_dispatch__ as optional

    wide = [name for name in optional if "512" in name or name == "X86_V4"]
    off = [] if kind == "SkylakeX" else wide if FEATURES[kind] == "AVX2" else list(optional)
    return {
        **(os.environ if base is None else base),
        "OPENBLAS_CORETYPE": kind,
        "NPY_DISABLE_CPU_FEATURES": " ".join(off),
    }


def itself() -> str | None:
    """The one of the three kinds whose code OpenBLAS takes here unasked; None where NumPy brings no OpenBLAS.

    An AMD processor with AVX-512 is a Haswell to it, so the newest kind of a machine is not always the one it is.
    """
    import numpy

    for library in sorted(Path(numpy.__file__).parent.parent.glob("numpy.libs/*openblas*")):
        name = getattr(ctypes.CDLL(str(library)), "scipy_openblas_get_corename64_", None)
        if name is not None:
            name.restype = ctypes.c_char_p
            core = name().decode()
            return {"Zen": "Haswell"}.get(core, core if core in THREE else THREE[-1])
    return None


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
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = [part for part in arguments.command if part != "--"]
    status = 0
    for kind in wanted(arguments.kinds):
        sys.stderr.write(f"as on {kind}\n")
        status = (
            subprocess.run([sys.executable, "-m", *command], env=environment(kind), check=False).returncode or status
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
