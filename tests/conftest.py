"""One option of the tests: `--share N` runs one in N cases of every test, at least one, and every kind its own."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

from scripts.kernels import share_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=1, metavar="N", help="one in N cases of every test, at least one")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Last, so that cases which `-m` and `-k` leave out are not counted."""
    share = config.getoption("share")
    if share == 1:
        return
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("[")[0]].append(item)
    kind = os.environ.get("OPENBLAS_CORETYPE", "")
    kept = {cases[i].nodeid for name, cases in tests.items() for i in share_of(kind, name, len(cases), share)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
