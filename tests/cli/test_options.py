"""Options, JSON and sentences of the commands beside their main path."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import jsonschema
import pytest
from typer.testing import CliRunner

import unsoftmax as us
from unsoftmax.cli.app import app
from unsoftmax.report import AUDIT_SCHEMA

HEAD = us.models.SingleHead.random(6, norm=2.0, seed=1)
COMMANDS = ["demo", "diagnose", "estimate", "recover", "audit", "report", "experiments", "serve", "theory"]


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.fixture
def head(tmp_path):
    HEAD.save(tmp_path / "head.safetensors")
    return tmp_path / "head.safetensors"


@contextmanager
def serving(*options):
    """`unsoftmax serve --json` in a process of its own: what it says, once it listens."""
    command = [sys.executable, "-c", "from unsoftmax_command import main; main()", "serve", "--port", "0", "--json"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), ["ledger", "show"], ["ledger", "export"]])
def test_json_and_debug_everywhere(command) -> None:
    shown = run(*command, "--help", env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert "--json" in shown
    assert "--debug" in shown


def test_demo_as_json_is_the_audit(tmp_path) -> None:
    done = run("demo", "--json", "--report", tmp_path / "new" / "demo.html")
    assert done.exit_code == 0, done.output
    jsonschema.validate(json.loads(done.stdout), AUDIT_SCHEMA)
    assert (tmp_path / "new" / "demo.html").stat().st_size


def test_a_served_model_says_where_it_is_and_is_a_target(tmp_path) -> None:
    with serving("--dim", "4", "--name", "my model") as (told, process):
        assert told["pid"] == process.pid
        assert told["model"] == "my model"
        assert told["target"] == f"{told['url']}/v2/models/my%20model"
        done = run("recover", told["target"], "--learner", "SingleHead", "--rate", 5000, "--json")
        assert done.exit_code == 0, done.output
        busy = run("serve", "--port", told["url"].rpartition(":")[2])
        assert busy.exit_code == 2
        assert "cannot be used" in busy.output
        secret = run("recover", told["target"], "--token-env", "hush-hush")
        assert secret.exit_code == 2
        assert "hush" not in secret.output
        named = run("diagnose", told["target"], "--token-env", "A_TOKEN", env={"A_TOKEN": "x"})
        assert named.exit_code == 0, named.output


@pytest.mark.long
def test_a_server_is_audited_and_its_noise_is_no_failure() -> None:
    with serving("--dim", "4") as (told, _):
        audited = run("audit", told["target"], "--send-rate", 50000, "--json")
        assert audited.exit_code == 0, audited.output
        cells = json.loads(audited.stdout)["cells"]
        noisy = next(c for c in cells if "random noise" in c["defence"])
        assert noisy["leak"] != "none"
        assert cells[0]["leak"] == "exact"


def test_a_server_that_is_down_is_said_to_be_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for command in ("recover", "diagnose", "audit"):
        shown = run(command, f"http://127.0.0.1:{port}/v2/models/m")
        assert shown.exit_code == 5
        assert "is not reachable (3 attempts: " in shown.output
        assert len(shown.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "{head}", "--rate", "5"],
        ["recover", "{head}", "--token-env", "HOME"],
        ["recover", "{tmp}/t.py:an_oracle", "--max-norm", "1"],
        ["recover", "{tmp}/t.py:nothing"],
        ["recover", "{head}", "--output", "{tmp}/absent/r.safetensors"],
        ["recover", "{head}", "--report", "{tmp}"],
        ["audit", "{head}", "--report", "{tmp}/absent/page.html"],
        ["audit", "{head}", "--rate", "0"],
        ["audit", "{head}", "--max-cost", "5"],
        ["audit", "{head}", "--learner", "Nonsense"],
        ["report"],
        ["report", "{head}"],
        ["report", "{tmp}/absent.json"],
        ["ledger", "show", "{tmp}"],
        ["ledger", "export", "{tmp}/absent.db", "{tmp}/x.csv"],
        ["experiments", "nonsense"],
        ["serve", "{tmp}/absent.safetensors"],
        ["serve", "--host", "not a host"],
        ["theory", "single_head_queries", "d=-3"],
        ["theory", "single_head_queries", "d=1.5"],
        ["theory", "low_rank_queries", "d=4", "r=5"],
        ["demo", "--report", "/proc/none/x.html"],
        ["recover", "{head}", "--config", "{tmp}/deep.toml"],
        ["recover", "http://[::1/v2/models/m"],
        ["recover", "http://host:abc/v2/models/m"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_a_sentence_with_code_2(arguments, head, tmp_path) -> None:
    (tmp_path / "t.py").write_text(
        "import unsoftmax as us\n"
        "def an_oracle(): return us.oracle(us.models.SingleHead.random(4))\n"
        "def nothing(): return 3\n"
    )
    (tmp_path / "deep.toml").write_text("seed = " + "[" * 5000 + "]" * 5000)
    shown = run(*[a.format(head=head, tmp=tmp_path) for a in arguments])
    assert shown.exit_code == 2, shown.output
    assert "Traceback" not in shown.output
    assert len(shown.output.strip().splitlines()) == 1, shown.output


def test_an_export_to_an_unwritable_place_is_a_sentence(head, tmp_path) -> None:
    ledger = tmp_path / "run.db"
    assert run("recover", head, "--learner", "SingleHead", "--ledger", ledger).exit_code == 0
    wrong = run("ledger", "export", ledger, tmp_path / "absent" / "x.csv")
    assert wrong.exit_code == 2
    assert "no folder" in wrong.output
    assert json.loads(run("ledger", "export", ledger, tmp_path / "x.csv", "--json").output)["answers"] > 36


def test_debug_lets_the_error_through(tmp_path) -> None:
    for arguments in (["ledger", "show", tmp_path / "x"], ["experiments", "nonsense"], ["serve", tmp_path / "x"]):
        assert isinstance(run(*arguments, "--debug").exception, us.errors.UnsoftmaxError)


def test_toml_holds_verify_and_learner_parameters(head, tmp_path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('learner = "LowRank"\nverify = false\n[set]\nrank = 6\n')
    assert json.loads(run("recover", head, "--config", config, "--json").output)["status"] == "unverified"
    assert json.loads(run("recover", head, "--config", config, "--verify", "--json").output)["status"] == "recovered"
    for text in ('verify = "no"', "rate = -1", "set = 3", "price = -1", "max_length = 1.5", "seed = true"):
        config.write_text(f"{text}\n")
        wrong = run("recover", head, "--config", config)
        assert wrong.exit_code == 2
        assert text.split()[0] in wrong.output


def test_an_audit_within_a_budget(head) -> None:
    found = json.loads(run("audit", head, "--budget", 10, "--json").stdout)
    assert {cell["leak"] for cell in found["cells"]} == {"none"}
    assert max(cell["queries"] for cell in found["cells"]) <= 10


def test_a_page_is_made_again_from_the_file_alone_and_nothing_is_lost(head, tmp_path) -> None:
    page, saved = tmp_path / "audit.html", tmp_path / "audit.json"
    done = run("audit", head, "--price", 0.01, "--report", page, "--output", saved)
    assert done.exit_code == 0, done.output
    assert f"unsoftmax audit {head} --seed 0 --price 0.01 --report {page}" in page.read_text()
    whole = page.read_bytes()
    assert run("report", saved).exit_code == 0
    assert page.read_bytes() == whole
    page.write_text("my own page")
    kept = run("report", saved)
    assert kept.exit_code == 2
    assert "--force" in kept.output
    assert page.read_text() == "my own page"
    assert run("report", saved, "--force").exit_code == 0
    assert page.read_bytes() == whole
    assert json.loads(run("report", "--schema").output) == AUDIT_SCHEMA


def test_a_recovery_page_beside_the_truth(head, tmp_path) -> None:
    out = tmp_path / "copy.safetensors"
    assert run("recover", head, "--learner", "SingleHead", "--output", out).exit_code == 0
    assert run("report", out).exit_code == 0
    assert "true W" not in (tmp_path / "copy.html").read_text()
    assert run("report", out, "--truth", head, "--force").exit_code == 0
    assert "true W" in (tmp_path / "copy.html").read_text()
    us.models.SingleHead.random(4).save(tmp_path / "other.safetensors")
    other = run("report", out, "--truth", tmp_path / "other.safetensors", "--force")
    assert other.exit_code == 2
    assert "dimension 4" in other.output


def test_names_from_outside_do_not_move_the_cursor(tmp_path) -> None:
    (tmp_path / "t.py").write_text(
        "import unsoftmax as us\n"
        "def raises(): raise ValueError('\\x1b[2Jboo')\n"
        "def named(): return us.oracle(us.models.SingleHead.random(4, norm=2.0), name='\\x1b[2Jboo')\n"
    )
    wrong = run("recover", f"{tmp_path}/t.py:raises")
    assert wrong.exit_code == 5
    assert "\x1b" not in wrong.output
    assert "boo" in wrong.output
    assert "\x1b" not in run("audit", f"{tmp_path}/t.py:named", "--budget", 1).output


def test_a_folder_that_is_not_there_is_named_when_saving(tmp_path) -> None:
    recovery = us.recover(us.oracle(HEAD), us.learners.SingleHead())
    for save in (recovery.save, HEAD.save):
        with pytest.raises(us.errors.InvalidArgument, match="cannot be written"):
            save(tmp_path / "absent" / "r.safetensors")


def test_the_smaller_rooms_are_there_when_named() -> None:
    assert us.experiments.available()
    assert us.report.AUDIT_SCHEMA
    with pytest.raises(AttributeError):
        us.nonsense  # noqa: B018
