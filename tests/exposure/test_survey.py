"""Doors of a server: open ones are named with what they give, others are not."""

from __future__ import annotations

import math

import pytest

import unsoftmax as us
from tests.servers.language_model import language_server
from unsoftmax.serving.language_model import LanguageService
from unsoftmax.serving.llama import Llama

MODEL = Llama.random(16, 40, heads=4, kv_heads=2, seed=3)


def names(found: us.Exposure) -> set[str]:
    return {finding.name for finding in found.open}


def test_open_doors_are_named() -> None:
    with language_server(LanguageService(MODEL)) as url:
        found = us.exposure(f"{url}/v1", rate=math.inf)
    assert {"models", "token ids", "logprobs", "logit bias", "embeddings", "prompt embeds"} <= names(found)
    assert {"llama.cpp completion", "sglang generate", "tei embed"} - names(found) == {"llama.cpp completion"}
    assert "open inference" not in names(found)
    assert all(finding.without_key for finding in found.open)
    assert "closed or absent" in str(found)


def test_closed_doors_are_not() -> None:
    with language_server(LanguageService(MODEL, doors=frozenset())) as url:
        found = us.exposure(url, rate=math.inf)
    assert names(found) == {"models", "token ids"}


def test_a_key_guards_what_it_guards(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with language_server(LanguageService(MODEL, key="sesame")) as url:
        found = us.exposure(url, rate=math.inf)
    by_name = {finding.name: finding for finding in found.open}
    assert not by_name["logprobs"].without_key
    # Routes beside /v1 are open to strangers, as on real servers.
    assert by_name["sglang generate"].without_key
    assert "sesame" not in str(found.as_dict())


def test_other_machines_need_a_word() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="own or may test"):
        us.exposure("http://192.0.2.1:8000")


def test_nobody_there() -> None:
    with pytest.raises(us.errors.OracleError, match="not reachable"):
        us.exposure("http://127.0.0.1:9", rate=math.inf)
