"""The page's look: readable on a phone, in dark and light, and on paper."""

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
