"""Kinds of processor that this machine can stand in for, and commands run as on each of them.

OpenBLAS and NumPy choose code by the processor they find, and its last digits differ. Both can be told to take older
code: `python -m scripts.kernels -- pytest tests/solvers` runs a command once for each of three kinds, and ends with an
error if one of the runs does. Kinds are x86-64; elsewhere the machine stands for itself alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Mapping

FEATURES = {"Prescott": "SSE3", "Sandybridge": "AVX", "Haswell": "AVX2", "Zen": "AVX2", "SkylakeX": "AVX512F"}
"""OpenBLAS's name of a kind, and the feature it needs; the oldest that NumPy runs on at all stands first."""

THREE = ("Prescott", "Haswell", "SkylakeX")
"""One for each width of vectors: the others share their code but for the order of loops."""


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


def wanted(kinds: str) -> list[str]:
    """The kinds of this machine that are meant by names, "all", "three", or "older": without what it is by itself."""
    here = available()
    three = [kind for kind in THREE if kind in here]
    groups = {"all": here, "three": three, "older": three[:-1]}
    return groups[kinds] if kinds in groups else [kind for kind in kinds.split(",") if kind in here]


def main() -> int:
    """Run the command under every kind asked for that the machine has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="three", help=f"of {', '.join(FEATURES)}; or all, three, older")
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
