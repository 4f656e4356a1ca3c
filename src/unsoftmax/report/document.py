"""The document around the sections: one self-contained HTML file; nothing from outside is left unescaped.

The page's look: readable on a phone, in dark and light, and on paper.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import Any

from unsoftmax.errors import UnsoftmaxError
from unsoftmax.report.charts import Chart

STYLE = """
:root { color-scheme: light dark; --ink: #1f2937; --soft: #4b5563; --paper: #ffffff; --faint: #f3f4f6; --line: #d1d5db;
  --exact: #b42318; --close: #b45309; --rough: #4b5563; --proved: #15803d; --held: #1d4ed8; --unknown: #6d28d9; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --soft: #b6bdc9; --paper: #111827; --faint: #1f2937; --line: #374151;
    --exact: #fca5a5; --close: #fcd34d; --rough: #cbd5e1; --proved: #86efac; --held: #93c5fd; --unknown: #c4b5fd; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
p, li { max-width: 46rem; }
li { margin: .3rem 0; }
ul { padding-left: 1.2rem; }
.lead { font-size: 1.1rem; }
.soft, figcaption, footer { font-size: .88rem; color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.figures div { background: var(--faint); border-radius: .5rem; padding: .75rem 1rem; }
.figures dt { font-size: .82rem; color: var(--soft); }
.figures dd { margin: 0; font-size: 1.35rem; font-weight: 650; line-height: 1.3; font-variant-numeric: tabular-nums; }
.answer { grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); }
.answer dd { font-size: 1.15rem; }
.answer dd.soft { font-size: .82rem; font-weight: 400; margin-top: .2rem; }
figure { margin: 1rem 0; }
.chart { width: 100%; max-width: 100%; overflow: hidden; min-height: 4rem; }
.chart svg { max-width: 100%; height: auto; display: block; }
.chart .mark-rect { shape-rendering: crispEdges; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
.pictures figure { margin: 0; width: 236px; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
td:last-child { overflow-wrap: anywhere; min-width: 11rem; }
.facts td:first-child { white-space: nowrap; color: var(--soft); width: 14rem; }
td.title { min-width: 14rem; }
.verdict { font-weight: 650; white-space: nowrap; }
.exact .verdict, .fails .verdict { color: var(--exact); }
.close .verdict { color: var(--close); }
.rough .verdict { color: var(--rough); }
.unknown .verdict { color: var(--unknown); }
.proved .verdict, .holds .verdict { color: var(--proved); }
.held .verdict { color: var(--held); }
.matrix { table-layout: fixed; margin: 1rem 0; border-collapse: separate; border-spacing: 2px; }
.matrix th { font-weight: 600; }
.matrix td { border: 0; border-top: 2px solid transparent; background: var(--faint); border-radius: .4rem;
  min-width: 0; }
.matrix td:last-child { min-width: 0; }
.matrix td.empty, .matrix thead td { background: none; }
.matrix td span, .matrix th span { display: block; font-size: .8rem; font-weight: 400; color: var(--soft); }
.matrix td span { font-variant-numeric: tabular-nums; }
.matrix td.exact { border-top-color: var(--exact); } .matrix .exact b { color: var(--exact); }
.matrix td.close { border-top-color: var(--close); } .matrix .close b { color: var(--close); }
.matrix td.rough { border-top-color: var(--rough); } .matrix .rough b { color: var(--rough); }
.matrix td.proved { border-top-color: var(--proved); } .matrix .proved b { color: var(--proved); }
.matrix td.held { border-top: 2px dashed var(--held); background: none; } .matrix .held b { color: var(--held); }
.matrix td.unknown { border-top-color: var(--unknown); } .matrix .unknown b { color: var(--unknown); }
pre { background: var(--faint); padding: .75rem 1rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem;
  white-space: pre-wrap; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .75rem; }
@media (max-width: 640px) {
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody, caption { display: block; }
  tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .6rem 0; border-bottom: 1px solid var(--line); }
  td:last-child { min-width: 0; }
  td, th.number, td.number { border: 0; padding: 0; text-align: left; }
  td.wide { flex-basis: 100%; }
  td.wide:empty { display: none; }
  td.title { font-weight: 650; min-width: 0; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--soft); font-weight: 400; }
  .matrix tr { gap: .15rem .6rem; }
  .matrix th { flex-basis: 100%; padding: 0; border: 0; }
  .matrix td { flex: 1 1 8rem; padding: .2rem .4rem; }
  .matrix td.empty { display: none; }
  .matrix td[data-label]::before { display: block; font-size: .75rem; }
  .facts tr { gap: 0 .5rem; }
  .facts td:first-child { width: auto; }
}
@media print {
  html { font-size: 11px; }
  body { font-size: 1rem; }
  main { max-width: none; padding: 0; }
  .pictures { flex-wrap: nowrap; }
  .pictures figure { width: 30%; }
  h2 { break-after: avoid; }
  figure, tr, .figures div, pre { break-inside: avoid; }
  .figures div, pre { border: 1px solid var(--line); }
}
"""


def document(title: str, sections: Iterable[str], drawn: dict[str, Chart]) -> str:
    """The whole page: sections are trusted HTML, everything else is escaped here."""
    specs = json.dumps(drawn, separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            *sections,
            "<footer>Made from saved results by unsoftmax; the page asks nothing of the network. "
            "Only for models you own or are permitted to test.</footer>",
            "</main>",
            f'<script type="application/json" id="charts">{specs}</script>',
            f"<script>{_vega()}</script>" if drawn else "",
            f"<script>{_DRAW}</script>" if drawn else "",
            "</body></html>",
        ]
    )


def section(title: str, body: str) -> str:
    """A titled part of the page; `body` is HTML."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def figure(name: str, drawn: dict[str, Chart], caption: str) -> str:
    """A chart: its whole description for those who cannot see it, a caption for those who do."""
    words = escape(drawn[name]["description"], quote=True)
    drawing = f'<div class="chart" id="chart-{name}" role="img" aria-label="{words}"></div>'
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text, of a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(items: Iterable[str]) -> str:
    """A list of plain texts; nothing if there are none."""
    shown = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{shown}</ul>" if shown else ""


def figures(named: dict[str, str]) -> str:
    """The few numbers to see first."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in named.items())
    return f'<dl class="figures">{shown}</dl>'


def table(caption: str, heads: Sequence[tuple[str, str]], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """`heads` are (name, class of the column), `rows` (class of the row, texts); on a phone a row becomes a card."""
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>' if kind else f'<th scope="col">{escape(name)}</th>'
        for name, kind in heads
    )
    body = "".join(f'<tr class="{escape(kind)}">{_cells(heads, texts)}</tr>' for kind, texts in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(heads: Sequence[tuple[str, str]], texts: Sequence[str]) -> str:
    cells = []
    for (name, kind), text in zip(heads, texts, strict=True):
        label = f' data-label="{escape(name)}"' if ("number" in kind or "labelled" in kind) and text else ""
        cells.append(f'<td class="{kind}"{label}>{escape(text)}</td>')
    return "".join(cells)


def facts(named: dict[str, Any]) -> str:
    """Nested facts as a flat table."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in _flat(named))
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _flat(named: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in sorted(named.items()):
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif value not in (None, [], (), {}):
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, default=str)


def code(text: str) -> str:
    """Text as it would be typed."""
    return f"<pre>{escape(text)}</pre>"


def can_draw() -> bool:
    """Whether the extra that draws pages is installed."""
    return importlib.util.find_spec("vl_convert") is not None


def require_drawing() -> None:
    """Raise unless a page can be drawn: to be asked before the run whose page it is."""
    if not can_draw():
        raise UnsoftmaxError('reports need the extra "report": pip install "unsoftmax[report]".')


@cache
def _vega() -> str:
    require_drawing()
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A block keeps the bundle's names to itself; a literal closing tag would end the script.
    return "{" + bundle.replace("</script", "<\\/script") + "}"


_DRAW = """(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const ink = "currentColor";
  const config = {
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelColor: ink, titleColor: ink, gridColor: ink, gridOpacity: 0.15, domainColor: ink, domainOpacity: 0.4,
      tickColor: ink, tickOpacity: 0.4, titleFontWeight: 400, labelFontSize: 11, titleFontSize: 11 },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 400 },
  };
  for (const [name, chart] of Object.entries(charts)) {
    const options = { mode: "vega-lite", actions: false, renderer: "svg", logLevel: 1, config };
    window.vegaEmbed("#chart-" + name, chart, options);
  }
})();"""
