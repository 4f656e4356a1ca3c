"""`make test-vllm`: vLLM on the CPU against the reference computation, where vLLM is installed.

vLLM for CPUs is no package of the index (the one there is built for GPUs): its documentation tells how to build it or
where its wheels are. Put it into an environment of its own and name that environment's Python:

    VLLM_PYTHON=/path/to/venv/bin/python make test-vllm
"""

from __future__ import annotations

import subprocess
import sys

from tests.servers.hugging_face import vllm_python

MISSING = (
    "vLLM is not installed here: this check starts a real vLLM server on the CPU. Install vLLM for CPUs in an "
    "environment of its own and run: VLLM_PYTHON=/path/to/venv/bin/python make test-vllm\n"
)
"""What is said where vLLM is missing."""


def main() -> int:
    """Run the tests of `tests/adapters/test_vllm.py`; 2 where there is no vLLM."""
    if vllm_python() is None:
        sys.stderr.write(MISSING)
        return 2
    command = [sys.executable, "-m", "pytest", "-q", "-m", "long", "tests/adapters/test_vllm.py"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
