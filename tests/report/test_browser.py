"""The report in a real browser: drawn, quiet, narrow, dark, and deaf to hostile names."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.examples import HOSTILE, an_audit, recovered
from unsoftmax.report import audit_page, recovery_page, write
from unsoftmax.results.audit import Limit

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None or shutil.which("chromedriver") is None,
    reason="Chromium and its driver are not installed (scripts/install_browser.sh)",
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
BAR_WIDTHS = "return [...document.querySelectorAll('.mark-rect path')].map(p => p.getBoundingClientRect().width)"
TEXT_ENDS = "return [...document.querySelectorAll('.chart text')].map(t => t.getBoundingClientRect().right)"
PLOTTED = "return [...document.querySelectorAll('#chart-ladder .mark-rect path')].length"
GLANCE = "return document.querySelector('.matrix td.exact').getBoundingClientRect().bottom + window.scrollY"
ANSWER = "return [...document.querySelectorAll('.answer dt')].map(t => t.textContent)"
ANSWERED = "return document.querySelector('.answer').getBoundingClientRect().bottom + window.scrollY"
INK = "return getComputedStyle(document.querySelector('#chart-phases .mark-text text')).fill"
ARTEFACTS = Path(__file__).parents[2] / "out" / "screenshots"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    recovery, truth = recovered()
    write(audit_page(an_audit(), recovery, truth), folder / "audit.html")
    write(recovery_page(recovery, truth), folder / "recovery.html")
    return folder


def open_browser(width: int, dark: bool):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in [*FLAGS, f"--window-size={width},900", *(["--force-dark-mode"] if dark else [])]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    emulation = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", emulation)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    return browser


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)], ids=["desktop-light", "phone-dark"])
def test_pages_open_from_disk_and_draw(pages, width, dark) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser = open_browser(width, dark)
    try:
        for name, charts in (("audit", 7), ("recovery", 5)):
            browser.get((pages / f"{name}.html").as_uri())
            WebDriverWait(browser, 30).until(
                lambda b, charts=charts: len(b.find_elements("css selector", ".chart svg")) == charts
            )
            widths = browser.execute_script(BAR_WIDTHS)
            assert len(widths) >= 3
            assert min(widths) > 0
            assert browser.get_log("browser") == []
            assert max(browser.execute_script(TEXT_ENDS)) <= width
            assert requests_of(browser) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            heads = [h.text for h in browser.find_elements("css selector", "h2")]
            assert {"Summary", "Certificate", "Provenance", "How to reproduce"} <= set(heads)
            assert browser.execute_script("return window.hacked") is None
            assert HOSTILE in browser.find_element("css selector", "h1").text
            background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(17, 24, 39)") == dark
            assert browser.execute_script(INK) == ("rgb(229, 231, 235)" if dark else "rgb(31, 41, 55)")
            if name == "audit":
                assert browser.execute_script(ANSWER) == ["What leaks", "What it costs", "What closes it"]
                assert browser.execute_script(ANSWERED) <= 780
                assert browser.execute_script(GLANCE) <= 900
                assert browser.execute_script(PLOTTED) == 3  # the fourth cell was refused before a query
                assert "refused before the first query" in browser.find_element("id", "chart-ladder").text
            ARTEFACTS.mkdir(parents=True, exist_ok=True)
            height = browser.execute_script("return document.documentElement.scrollHeight")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.save_screenshot(str(ARTEFACTS / f"{name}-{width}.png"))
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"height": 900})
            paper = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
            (ARTEFACTS / f"{name}-{width}.pdf").write_bytes(base64.b64decode(paper["data"]))
    finally:
        browser.quit()


def requests_of(browser) -> list[str]:
    """Addresses the page asked for that are not on disk."""
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("file:", "data:", "blob:"))]


def test_the_page_is_small_enough(pages) -> None:
    assert (pages / "audit.html").stat().st_size <= 3 * 2**20


@pytest.mark.parametrize("width", [1200, 360])
def test_limits_to_set_fit_the_page(tmp_path: Path, width: int) -> None:
    terms = {"keep_above": 10_000.0, "price_per_principal": 20.0}
    limits = (
        Limit("labels only", 8202, 951, 82.02, 1.22, 24, 1),
        Limit("probabilities", 284, 84, 2.84, 35.22, None, None),
        Limit("values", 225, 84, 2.25, 44.45, 0, 0),
    )
    audit = an_audit()
    audit = replace(audit, limits=limits, provenance=audit.provenance | {"terms": terms})
    write(audit_page(audit), tmp_path / "audit.html")
    browser = open_browser(width, False)
    try:
        browser.get((tmp_path / "audit.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.quit()
