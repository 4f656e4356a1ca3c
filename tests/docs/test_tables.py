"""From a benchmark run's JSON to the tables of the docs, and the rows the peers' benchmark is made of."""

from __future__ import annotations

import json

import pytest

from benchmarks.peers import compared
from benchmarks.scaling import exponent
from scripts.docs import tables
from scripts.docs.collect import claims, collected

OURS = {"method": "unsoftmax", "queries": 10, "error": 1e-15, "seconds": 0.1, "remark": ""}


def peer(method="other", **values):
    return {"method": method, "queries": 20, "error": 1e-3, "seconds": 0.2, "remark": "", **values}


def test_rows_say_where_ours_is_not_first() -> None:
    missing = {"method": "gone", "queries": None, "error": None, "seconds": None, "remark": "not installed"}
    queries, error, seconds = compared("task", [OURS, peer(queries=8), peer("slow", seconds=0.01), missing])
    assert not queries.met
    assert "other has less here" in queries.meaning
    assert error.met
    assert error.ratio == pytest.approx(1e-11)
    assert not seconds.met
    assert "slow" in seconds.meaning
    assert len(queries.figures["lines"]) == 4


def test_errors_at_rounding_are_equal() -> None:
    rows = list(compared("task", [OURS, peer(error=1e-16)]))
    assert rows[1].ratio == 1.0


def test_exponents_are_slopes() -> None:
    lines = [{"queries": 3 * d**2} for d in (4, 8, 16)]
    assert exponent((4, 8, 16), lines, "queries") == pytest.approx(2.0)


def test_tables_come_from_the_run(tmp_path) -> None:
    rows = [
        {
            "name": row.name,
            "ratio": row.ratio,
            "limit": row.limit,
            "met": row.met,
            "meaning": row.meaning,
            "figures": row.figures,
        }
        for row in compared("a | b", [OURS, peer()])
    ]
    found = collected({"python": "3", "numpy": "2", "machine": "m", "rows": rows})
    assert set(found) == {"peers", "peers-ratios"}
    path = tmp_path / "peers.json"
    path.write_text(json.dumps(found["peers"]))
    text = tables.table(path)
    assert "| a \\| b | unsoftmax | 10 | 1e-15 | 0.1 |  |" in text
    assert "Python 3" in text


def test_claims_come_from_the_experiments(tmp_path) -> None:
    reports = [
        {"name": "one", "holds": True, "paragraph": "a holds: |v|"},
        {"name": "two", "holds": False, "paragraph": "b"},
    ]
    path = tmp_path / "claims.json"
    path.write_text(json.dumps(claims(reports)))
    text = tables.table(path)
    assert "| one | a holds: \\|v\\| |" in text
    assert "1 of 2 claims hold." in text
