"""The page's look: readable on a phone, in dark and light, and on paper."""

STYLE = """
:root { --ink: #1f2937; --paper: #ffffff; --faint: #f3f4f6; --line: #d1d5db; --link: #1d4ed8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --paper: #111827; --faint: #1f2937; --line: #374151; --link: #93c5fd; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
figure { margin: 1rem 0; }
figcaption { font-size: .85rem; opacity: .8; }
.chart { width: 100%; max-width: 100%; overflow: hidden; min-height: 4rem; }
.chart svg { max-width: 100%; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
th, td { overflow-wrap: normal; }
td:nth-child(n + 4):nth-child(-n + 7) { white-space: nowrap; }
td:last-child { min-width: 14rem; overflow-wrap: anywhere; }
tr.exact td:nth-child(3) { color: #b42318; font-weight: 600; }
tr.none td:nth-child(3) { color: #15803d; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  tr.exact td:nth-child(3) { color: #fca5a5; }
  tr.none td:nth-child(3) { color: #86efac; }
}
pre { background: var(--faint); padding: .75rem; overflow-x: auto; font-size: .8rem; max-height: 24rem;
  white-space: pre-wrap; }
@media print { .scroll { overflow: visible; } pre { max-height: none; } section { break-inside: avoid-page; } }
"""
