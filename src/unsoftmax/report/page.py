"""One self-contained HTML page from saved results: no network, nothing from outside left unescaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from unsoftmax.audit_result import Audit, Cell, error_of
from unsoftmax.errors import UnsoftmaxError
from unsoftmax.models.base import Model
from unsoftmax.report import charts
from unsoftmax.report.style import STYLE
from unsoftmax.result import Recovery


def page(title: str, sections: Iterable[str], drawn: dict[str, charts.Chart]) -> str:
    """The whole document: sections are trusted HTML, everything else is escaped here."""
    specs = json.dumps(drawn).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            *sections,
            "</main>",
            f'<script type="application/json" id="charts">{specs}</script>',
            f"<script>{_vega()}</script>" if drawn else "",
            f"<script>{_DRAW}</script>" if drawn else "",
            "</body></html>",
        ]
    )


def write(html: str, path: str | Path) -> None:
    Path(path).write_text(html, encoding="utf-8")


def audit_page(audit: Audit, recovery: Recovery | None = None, truth: Model | None = None) -> str:
    """Summary, ladder, frontier, heat map, certificate, provenance, how to reproduce."""
    drawn = {"ladder": charts.ladder_chart(audit), "frontier": charts.frontier_chart(audit)}
    sections = [
        _section("Summary", _summary(audit)),
        _section("Leak ladder", _figure("ladder", drawn) + _ladder_table(audit)),
        _section("Cost frontier", _figure("frontier", drawn) + _frontier_text(audit)),
        *_recovery_sections(recovery, truth, drawn),
        _section("Provenance", _facts(audit.provenance)),
        _section("How to reproduce", _reproduce_audit(audit)),
    ]
    return page(f"Leak audit of {audit.target}", sections, drawn)


def recovery_page(recovery: Recovery, truth: Model | None = None) -> str:
    """The page of a single recovery."""
    drawn: dict[str, charts.Chart] = {}
    spec = recovery.provenance.get("spec", {})
    name = str(spec.get("name") or "target") if isinstance(spec, dict) else "target"
    model = (
        "no model" if recovery.model is None else f"a {type(recovery.model).__name__} of dimension {recovery.model.dim}"
    )
    words = (
        f"<p>The run ended as <strong>{escape(recovery.status.value)}</strong> with {escape(model)}, after "
        f"{recovery.usage.billed} billed queries in {recovery.usage.rounds} rounds.</p>"
        f"<p>{escape(recovery.status.remedy)}</p>" + _list(recovery.notes)
    )
    sections = [
        _section("Summary", words),
        *_recovery_sections(recovery, truth, drawn),
        _section("Provenance", _facts(recovery.provenance)),
        _section("How to reproduce", _reproduce_recovery(recovery)),
    ]
    return page(f"Recovery of {name}", sections, drawn)


def _summary(audit: Audit) -> str:
    leaks = sum(c.leak in ("exact", "close") for c in audit.cells)
    lead = (
        f"<p><strong>{leaks} of {len(audit.cells)}</strong> ways in give a close or exact copy of "
        f"{escape(audit.target)} ({audit.unknowns} unknowns).</p>"
    )
    return lead + _list(audit.recommendations)


def _ladder_table(audit: Audit) -> str:
    head = "".join(f"<th>{h}</th>" for h in ("access", "defence", "copy", "queries", "time", "price", "error", "why"))
    rows = "".join(_ladder_row(cell, audit.currency) for cell in audit.cells)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _ladder_row(cell: Cell, currency: str) -> str:
    error = error_of(cell)
    values = (
        cell.access,
        cell.defence,
        cell.leak,
        f"{cell.queries:,}",
        f"{cell.hours:.2f} h",
        f"{cell.price:,.2f} {currency}",
        f"{error:.1e}" if error < 1e300 else "-",
        cell.reason,
    )
    shown = "".join(f"<td>{escape(value)}</td>" for value in values)
    return f'<tr class="{escape(cell.leak)}">{shown}</tr>'


def _frontier_text(audit: Audit) -> str:
    items = [
        f"{cell.queries:,} queries buy a relative error of {error_of(cell):.1e} ({cell.name})."
        for cell in audit.frontier
    ]
    return _list(items) if items else "<p>No cell gave a usable copy.</p>"


def _recovery_sections(recovery: Recovery | None, truth: Model | None, drawn: dict[str, charts.Chart]) -> list[str]:
    if recovery is None:
        return []
    sections = []
    W = getattr(recovery.model, "W", None)
    true_W = getattr(truth, "W", None)
    if W is not None and W.ndim == 2:
        matrices = {"recovered W": W}
        if true_W is not None and true_W.shape == W.shape:
            matrices |= {"true W": true_W}
        drawn["heatmap"] = charts.heatmap_chart(matrices)
        sections.append(_section("Recovered weights", _figure("heatmap", drawn)))
    drawn["phases"] = charts.phases_chart(recovery)
    sections.append(_section("Queries by phase", _figure("phases", drawn)))
    if recovery.certificate.claims:
        drawn["claims"] = charts.claims_chart(recovery)
        sections.append(_section("Certificate", _figure("claims", drawn) + _claims(recovery)))
    return sections


def _claims(recovery: Recovery) -> str:
    items = []
    for c in recovery.certificate.claims:
        seen = "" if c.observed is None else f"observed {c.observed:.2g}, "
        verdict = "holds" if c.holds else "fails"
        items.append(f"{c.name} {verdict} ({c.basis}): {seen}allowed {c.bound:.2g}. {c.statement} {c.theorem or ''}")
    return _list(items)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _figure(name: str, drawn: dict[str, charts.Chart]) -> str:
    words = escape(drawn[name]["description"], quote=True)
    drawing = f'<div class="chart" id="chart-{name}" role="img" aria-label="{words}"></div>'
    return f"<figure>{drawing}<figcaption>{words}</figcaption></figure>"


def _list(items: Iterable[str]) -> str:
    shown = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{shown}</ul>" if shown else ""


def _facts(facts: dict[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(facts, indent=1, default=str, sort_keys=True))}</pre>"


def _reproduce_audit(audit: Audit) -> str:
    seed = escape(str(audit.provenance.get("seed", 0)))
    words = "Finished cells are kept in the audit's folder and are not asked again."
    return f"<pre>unsoftmax audit TARGET --seed {seed} --report page.html</pre><p>{words}</p>"


def _reproduce_recovery(recovery: Recovery) -> str:
    configuration = recovery.provenance.get("configuration", {})
    learner = configuration.get("learner", "auto") if isinstance(configuration, dict) else "auto"
    seed = escape(str(recovery.provenance.get("seed", 0)))
    return f"<pre>unsoftmax recover TARGET --learner {escape(str(learner))} --seed {seed} --report page.html</pre>"


@cache
def _vega() -> str:
    try:
        import vl_convert
    except ImportError as error:
        raise UnsoftmaxError('reports need the extra "report": pip install "unsoftmax[report]".') from error
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A block keeps the bundle's names to itself; a literal closing tag would end the script.
    return "{" + bundle.replace("</script", "<\\/script") + "}"


_DRAW = """(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const draw = () => {
    const ink = dark.matches ? "#e5e7eb" : "#1f2937";
    const faint = dark.matches ? "#374151" : "#e5e7eb";
    const config = {
      view: { stroke: null },
      axis: { labelColor: ink, titleColor: ink, gridColor: faint, domainColor: faint, tickColor: faint },
      legend: { labelColor: ink, titleColor: ink, orient: "bottom" },
      header: { labelColor: ink, titleColor: ink },
    };
    for (const [name, chart] of Object.entries(charts)) {
      window.vegaEmbed("#chart-" + name, chart, { actions: false, renderer: "svg", config });
    }
  };
  dark.addEventListener("change", draw);
  draw();
})();"""
