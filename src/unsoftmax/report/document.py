"""The document around the sections: one self-contained HTML file; nothing from outside is left unescaped."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import Any

from unsoftmax.errors import UnsoftmaxError
from unsoftmax.report.charts import Chart
from unsoftmax.report.style import STYLE


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
