"""Commands against a server that speaks the wires of language models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import unsoftmax as us
from tests.adapters.test_wires import MODEL, D, V
from tests.servers.language_model import language_server
from unsoftmax.cli.app import app
from unsoftmax.serving.language_model import LanguageService

SERVICE = LanguageService(MODEL)


@pytest.fixture(scope="module")
def url():
    with language_server(SERVICE) as address:
        yield address


def run(command: str, target: str, *more: object, api: str = "openai") -> str:
    arguments = [command, target, *map(str, more), "--api", api]
    if api != "llama.cpp":
        arguments += ["--wire", f"vocabulary={V}"]
    if api in ("openai", "chat", "embeddings"):
        arguments += ["--model", "model"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_estimate_asks_nothing(url: str) -> None:
    before = SERVICE.sequences
    assert json.loads(run("estimate", f"{url}/v1", "--json"))
    assert SERVICE.sequences == before


def test_diagnose(url: str) -> None:
    assert "output layer" in run("diagnose", f"{url}/v1")


@pytest.mark.parametrize(("api", "path"), [("openai", "/v1"), ("llama.cpp", ""), ("sglang", "")])
def test_recover_and_width(url: str, api: str, path: str, tmp_path: Path) -> None:
    before = SERVICE.sequences
    found = json.loads(run("recover", f"{url}{path}", "--json", api=api))
    assert found["status"] == "recovered"
    assert found["usage"]["billed"] == SERVICE.sequences - before
    page = tmp_path / "width.html"
    assert json.loads(run("width", f"{url}{path}", "--json", "--report", page, api=api))["width"] == D
    assert "singular" in page.read_text()


def test_compare_with_what_was_recovered(url: str, tmp_path: Path) -> None:
    layer = tmp_path / "layer.safetensors"
    run("width", f"{url}/v1", "--output", layer)
    assert "same" in run("compare", f"{url}/v1", layer)
    other = us.models.OutputLayer.random(D, V)
    other.save(layer)
    done = CliRunner().invoke(
        app, ["compare", f"{url}/v1", str(layer), "--api", "openai", "--model", "model", "--wire", f"vocabulary={V}"]
    )
    assert done.exit_code == 11
    assert "Another output layer" in done.output


def test_audit(url: str) -> None:
    said = run("audit", f"{url}/v1")
    assert "row space of the output layer" in said
    assert "top 5 with a bias" in said


def test_exposure_is_for_one_s_own_servers(url: str) -> None:
    done = CliRunner().invoke(app, ["exposure", url, "--rate", "1000", "--json"])
    assert done.exit_code == 0, done.output
    assert any(door["open"] for door in json.loads(done.output)["findings"])
    refused = CliRunner().invoke(app, ["exposure", "http://192.0.2.1:8000"])
    assert refused.exit_code == 2
    assert "--i-may-test-this" in refused.output
