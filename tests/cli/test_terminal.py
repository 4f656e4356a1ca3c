"""In a real terminal: progress is shown, Ctrl-C leaves a ledger that resumes, and the exit code is 130."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import unsoftmax as us

TARGET = """
import os
import time
import unsoftmax as us

HEAD = us.models.SingleHead.random(24, norm=2.0, seed=0)


def make():
    def slow(X):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        return HEAD(X)

    return us.oracle(slow, 24, max_batch=4, name="slow head")
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from unsoftmax_command import main; main()", *arguments]


def _as_in_a_terminal() -> None:
    """Tests started in the background inherit an ignored SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read(fd: int, until: float, enough: str = "") -> str:
    shown = ""
    os.set_blocking(fd, False)
    while time.monotonic() < until and not (enough and enough in shown):
        try:
            shown += os.read(fd, 65536).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            break
    return shown


def test_progress_interrupt_and_resume(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(TARGET)
    ledger = tmp_path / "run.ledger"
    arguments = ("recover", f"{tmp_path}/target.py:make", "--learner", "SingleHead", "--ledger", str(ledger))
    leader, follower = pty.openpty()
    # Slow enough that it cannot end before the interrupt, on any machine.
    slow = os.environ | {"PAUSE": "0.3"}
    process = subprocess.Popen(
        command(*arguments), stdin=follower, stdout=follower, stderr=follower, env=slow, preexec_fn=_as_in_a_terminal
    )
    os.close(follower)
    shown = read(leader, time.monotonic() + 60, enough="/s")
    assert "queries" in shown
    assert "/s" in shown
    process.send_signal(signal.SIGINT)
    shown += read(leader, time.monotonic() + 30)
    assert process.wait(30) == 130
    assert "interrupted" in shown
    assert "Traceback" not in shown
    again = subprocess.run(
        command(*arguments, "--output", str(tmp_path / "r.safetensors")), capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    recovery = us.load(tmp_path / "r.safetensors")
    assert recovery.usage.billed < recovery.usage.asked
    assert us.models.distance(recovery.model, us.models.SingleHead.random(24, norm=2.0, seed=0)) < 1e-13


def test_an_interrupt_while_loading_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command("theory"), capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 130
    assert done.stdout + done.stderr == ""


def test_no_progress_outside_a_terminal(tmp_path: Path) -> None:
    us.models.SingleHead.random(6, seed=1).save(tmp_path / "head.safetensors")
    arguments = command("recover", str(tmp_path / "head.safetensors"), "--learner", "SingleHead")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout + done.stderr
