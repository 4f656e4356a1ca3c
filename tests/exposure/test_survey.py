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
    with language_server(service := LanguageService(MODEL)) as url:
        found = us.exposure(f"{url}/v1", rate=math.inf)
    assert service.requests < found.requests <= 80
    assert {"models", "token ids", "logprobs", "logit bias", "embeddings", "prompt embeds", "version"} <= names(found)
    assert {"llama.cpp completion", "sglang generate", "tei embed"} <= names(found)
    assert names(found).isdisjoint({"open inference", "raw logits", "invocations", "metrics", "slots"})
    assert all(finding.without_key for finding in found.open)
    assert found.server == "uvicorn"
    assert "(practice)" in str(found)
    assert "closed or absent" in str(found)


@pytest.mark.parametrize("most", [3, 5, 17, 20, 21, 40])
def test_how_many_log_probabilities_are_shown(most: int) -> None:
    """Whether a server refuses more, or shows fewer than it was asked for."""

    class Limited(LanguageService):
        def _top(self, shown, k):
            if k > most and not clamps:
                raise us.errors.InvalidArgument("too many.")
            return super()._top(shown, min(k, most))

    for clamps in (True, False):
        with language_server(Limited(MODEL)) as url:
            found = us.exposure(url, rate=math.inf)
        by_name = {finding.name: finding for finding in found.open}
        if clamps or most >= 5:
            assert by_name["logprobs"].shown == by_name["llama.cpp completion"].shown == most
            assert f"{most} numbers" in str(found)


def test_many_are_said_as_more() -> None:
    with language_server(LanguageService(Llama.random(16, 1200, heads=4, kv_heads=2, seed=3))) as url:
        found = us.exposure(url, rate=math.inf)
    assert next(finding.shown for finding in found.open if finding.name == "logprobs") == 1000
    assert "1000 numbers and more" in str(found)


def test_raw_logits_are_told_from_log_probabilities() -> None:
    with language_server(LanguageService(MODEL, raw_logits=True)) as url:
        assert "raw logits" in names(us.exposure(url, rate=math.inf))


def test_a_bias_that_does_not_act_on_what_is_shown_is_no_door() -> None:
    class Before(LanguageService):
        def _shown(self, logits, bias=None):
            return super()._shown(logits)

    with language_server(Before(MODEL)) as url:
        assert "logit bias" not in names(us.exposure(url, rate=math.inf))


@pytest.mark.parametrize("raw_logits", [True, False])
def test_a_model_that_is_certain_by_itself_shows_no_bias(raw_logits: bool) -> None:
    class Certain(LanguageService):
        def _shown(self, logits, bias=None):
            return super()._shown(logits * 1e4)

    with language_server(Certain(MODEL, raw_logits=raw_logits)) as url:
        assert "logit bias" not in names(us.exposure(url, rate=math.inf))


def test_closed_doors_are_not() -> None:
    with language_server(LanguageService(MODEL, doors=frozenset())) as url:
        found = us.exposure(url, rate=math.inf)
    assert names(found) == {"models", "token ids", "version"}


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


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="`url` must be"):
        us.exposure("http://[::1")
