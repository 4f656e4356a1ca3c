"""Pages from saved results: what an audit or a recovery says, section by section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unsoftmax.errors import InvalidArgument
from unsoftmax.models.base import Model
from unsoftmax.models.output_layer import OutputLayer
from unsoftmax.report import audit_charts, charts
from unsoftmax.report.answer import answer
from unsoftmax.report.charts import spectrum_chart
from unsoftmax.report.document import bullets, code, document, facts, figure, figures, paragraph, section, table
from unsoftmax.report.fits import fit_sections
from unsoftmax.report.matrix import matrix, result, shade
from unsoftmax.results.audit import CLOSE, EXACT, ROUGH, Audit, Cell, duration, error_of, rounded_up
from unsoftmax.results.evidence import Evidence, Picture, evidence_of
from unsoftmax.results.recovery import Recovery
from unsoftmax.results.references import EXTRACTION, lines_of

_WORDS = (
    f"A copy is exact up to a relative error of {EXACT:g}, close up to {CLOSE:g}, rough up to {ROUGH:g}. "
    "The attacker is taken to know the kind of model; finding it out costs a few hundred queries more."
)


def write(html: str, path: str | Path) -> None:
    """Write a page; the folder must exist."""
    try:
        Path(path).write_text(html, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written ({error.strerror or error}); check the folder.") from error


def audit_page(audit: Audit, recovery: Recovery | None = None, truth: Model | None = None) -> str:
    """Matrix, summary, ladder, frontier, heat maps, certificate, provenance, how to reproduce.

    All of it stands in a saved audit; `recovery` and `truth` replace its evidence.
    """
    evidence = audit.evidence if recovery is None else evidence_of(recovery, truth)
    drawn: dict[str, charts.Chart] = {}
    sections = [
        answer(audit),
        matrix(audit) if audit.in_scope else "",
        section("Summary", bullets([*audit.recommendations, *_asked(evidence)]) + paragraph(_WORDS, "soft")),
        *_limits(audit),
        *(_ladder_sections(audit, drawn) if audit.in_scope else ()),
        *([] if evidence is None else _evidence_sections(evidence, drawn)),
        section(
            "References", paragraph("What these findings are filed under.", "soft") + bullets(lines_of(EXTRACTION))
        ),
        section("Provenance", facts(_told(audit.provenance))),
        section("How to reproduce", _reproduce_audit(audit)),
    ]
    return document(f"Leak audit of {audit.target}", sections, drawn)


def recovery_page(recovery: Recovery, truth: Model | None = None) -> str:
    """The page of a single recovery, from queries or from a log."""
    drawn: dict[str, charts.Chart] = {}
    evidence = evidence_of(recovery, truth)
    if recovery.fitted:
        return _fit_page(recovery, evidence, drawn)
    spec = recovery.provenance.get("spec", {})
    name = str(spec.get("name") or "target") if isinstance(spec, dict) else "target"
    key = {
        "Outcome": recovery.status.value,
        "Queries billed": f"{recovery.usage.billed:,}",
        "Rounds": f"{recovery.usage.rounds:,}",
    }
    words = [f"The run gave {evidence.model}. {recovery.status.remedy}", *recovery.notes]
    sections = [
        figures(key),
        section("Summary", bullets(words)),
        *_spectrum(recovery.model, drawn),
        *_evidence_sections(evidence, drawn),
        section("Provenance", facts(_told(recovery.provenance))),
        section("How to reproduce", _reproduce_recovery(recovery)),
    ]
    return document(f"Recovery of {name}", sections, drawn)


def _fit_page(recovery: Recovery, evidence: Evidence, drawn: dict[str, charts.Chart]) -> str:
    key = {"Outcome": recovery.status.value, "Records fitted": f"{recovery.usage.phases.get('fitted', 0):,}"}
    key |= {"Held out": f"{recovery.usage.phases.get('held out', 0):,}", "Queries": "0"}
    sections = [
        figures(key),
        section("Summary", bullets([f"The log gave {evidence.model}. {recovery.status.remedy}", *recovery.notes])),
        *fit_sections(recovery, drawn),
        *_evidence_sections(evidence, drawn),
        section("Provenance", facts(_told(recovery.provenance))),
        section("How to reproduce", code(str(recovery.provenance.get("command", _refit(recovery))))),
    ]
    return document("Model from recorded traffic", sections, drawn)


def _refit(recovery: Recovery) -> str:
    fit = recovery.provenance["fit"]
    given = ", ".join(f"{k}={v!r}" for k, v in fit.items() if v is not None) if isinstance(fit, dict) else ""
    return f"us.fit(log, {given}, seed={recovery.provenance.get('seed', 0)})"


_LADDER = "Queries an attacker spends on each way in, and how good the copy is in the end. Access: {} unless named."
_FRONTIER = "Error of the copy against what it took; the stair joins the ways in that no other beats."


def _priced(audit: Audit) -> bool:
    return any(cell.price for cell in audit.cells)


def _ladder_sections(audit: Audit, drawn: dict[str, charts.Chart]) -> Iterator[str]:
    """Every way in, as bars and a table, and what each error costs."""
    drawn |= {"ladder": audit_charts.ladder_chart(audit), "frontier": audit_charts.frontier_chart(audit)}
    words = _LADDER.format(audit.cells[0].access)
    yield section("Leak ladder", figure("ladder", drawn, words) + _ladder_table(audit))
    yield section("Cost frontier", figure("frontier", drawn, _FRONTIER) + _frontier_text(audit))


def _limits(audit: Audit) -> Iterator[str]:
    """What to set for the price that the owner named, by access level."""
    terms = audit.provenance.get("terms")
    if not audit.limits or not isinstance(terms, dict):
        return
    heads = [("access", "title"), *((name, "number") for name in _LIMITS)]
    rows = [
        (
            "",
            [
                limit.access,
                f"{limit.queries:,}",
                f"{limit.fewest:,}",
                f"{rounded_up(limit.query_price)} {audit.currency}",
                _monthly(limit.monthly),
                _monthly(limit.monthly_any),
            ],
        )
        for limit in audit.limits
    ]
    each = f"{terms.get('price_per_principal', 0.0):,.2f} {audit.currency} a principal and month"
    words = f"What keeps a copy above {terms.get('keep_above'):,.0f} {audit.currency}, at {each}."
    yield section("Limits to set", table(words, heads, rows))


_LIMITS = (
    "queries measured",
    "fewest of any method",
    "or ask per query",
    "per principal and month",
    "against any method",
)


def _monthly(limit: int | None) -> str:
    return "no limit needed" if limit is None else "none suffices" if limit == 0 else f"{limit:,}"


def _ladder_table(audit: Audit) -> str:
    heads = [("way in", "wide title"), ("result", "verdict"), ("queries", "number"), ("time", "number")]
    heads += [("price", "number")] if _priced(audit) else []
    heads += [("error", "number"), ("details", "wide labelled")]
    rows = [(shade(audit, cell), _ladder_row(cell, audit)) for cell in audit.cells]
    words = "Every way in: access, defence, and what the attacker has in the end"
    return table(f"{words} (error relative to the true {'weights' if audit.truth_given else 'answers'}).", heads, rows)


def _ladder_row(cell: Cell, audit: Audit) -> list[str]:
    asked = cell.queries > 0
    row = [cell.title, result(audit, cell), f"{cell.queries:,}" if asked else "", duration(cell.hours) if asked else ""]
    if _priced(audit):
        row.append(f"{cell.price:,.2f} {audit.currency}" if asked else "")
    error = error_of(cell)
    how = "" if cell.learner == "none" or cell.learner in cell.reason else cell.learner
    return [*row, f"{error:.1e}" if error < 1e300 else "", ": ".join(text for text in (how, cell.reason) if text)]


def _frontier_text(audit: Audit) -> str:
    items = [
        f"{cell.queries:,} queries buy a relative error of {error_of(cell):.1e} ({cell.title})."
        for cell in audit.frontier
    ]
    return bullets(items) if items else paragraph("No way in gave a usable copy.")


def _spectrum(model: Model | None, drawn: dict[str, charts.Chart]) -> Iterator[str]:
    """The evidence for the width of an output layer."""
    if not isinstance(model, OutputLayer) or model.singular_values is None:
        return
    drawn["spectrum"] = spectrum_chart(model.singular_values, model.width)
    words = f"Singular values of the answers: {model.width} of signal, then noise. The gap is the hidden width."
    yield section("Hidden width", figure("spectrum", drawn, words))


def _evidence_sections(evidence: Evidence, drawn: dict[str, charts.Chart]) -> Iterator[str]:
    if evidence.pictures:
        shown = "".join(_picture(picture, number, drawn) for number, picture in enumerate(evidence.pictures))
        yield section("Recovered weights", shown)
    if evidence.phases.keys() != {"fitted", "held out"}:
        drawn["phases"] = charts.phases_chart(evidence)
        yield section("Queries by phase", figure("phases", drawn, "Queries billed in each phase of the recovery."))
    if evidence.claims:
        drawing = ""
        if any(claim.observed is not None for claim in evidence.claims):
            drawn["claims"] = charts.claims_chart(evidence)
            drawing = figure("claims", drawn, "Error on fresh queries beside what each claim allows.")
        about = "".join(paragraph(words) for words in _asked(evidence))
        yield section("Certificate", about + drawing + _claims(evidence))


def _asked(evidence: Evidence | None) -> list[str]:
    """What the result is about."""
    return [f"Asked: {evidence.asked}."] if evidence is not None and evidence.asked else []


def _picture(picture: Picture, number: int, drawn: dict[str, charts.Chart]) -> str:
    """Recovered and true matrix on one scale, their difference on its own."""
    grids = {f"recovered {picture.name}": picture.recovered, f"true {picture.name}": picture.true}
    top = max((abs(x) for grid in grids.values() for row in grid or [] for x in row), default=1.0) or 1.0
    scales = dict.fromkeys(grids, top)
    if picture.difference is not None:
        name = f"recovered - true {picture.name}"
        grids[name] = picture.difference
        scales[name] = max((abs(x) for row in picture.difference for x in row), default=1.0) or 1e-16
    shown = []
    for place, (name, grid) in enumerate(grids.items()):
        if grid is not None:
            key = f"weights-{number}-{place}"
            drawn[key] = charts.heatmap_chart(name, grid, scales[name])
            shown.append(figure(key, drawn, name))
    about = paragraph(f"{picture.name}: {picture.shows}.", "soft") if picture.shows else ""
    return f'{about}<div class="pictures">{"".join(shown)}</div>'


def _claims(evidence: Evidence) -> str:
    heads = [("claim", "wide title"), ("result", "verdict"), ("observed", "number"), ("allowed", "number")]
    heads += [("basis", "labelled"), ("what was checked", "wide")]
    rows = []
    for c in evidence.claims:
        verdict = "stated" if c.observed is None else "holds" if c.holds else "fails"
        seen = "" if c.observed is None else f"{c.observed:.2g}"
        words = " ".join(text for text in (c.statement, f"({c.theorem})" if c.theorem else "") if text)
        rows.append((verdict, [c.name, verdict, seen, f"{c.bound:.2g}", c.basis, words]))
    return table("Claims about the copy: proved, measured on fresh queries, or assumed.", heads, rows)


def _told(provenance: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in provenance.items() if name not in ("command", "references")}


def _reproduce_audit(audit: Audit) -> str:
    command = audit.provenance.get("command")
    if isinstance(command, str):
        return code(command) + paragraph("With --folder, finished cells are kept and are not asked again.")
    terms = audit.provenance.get("terms")
    given = ", ".join(f"{name}={value!r}" for name, value in terms.items()) if isinstance(terms, dict) else ""
    seed = audit.provenance.get("seed", 0)
    return code(f"us.audit(oracle, truth, terms=unsoftmax.auditing.Terms({given}), seed={seed})") + paragraph(
        "With folder=, finished cells are kept and are not asked again."
    )


def _reproduce_recovery(recovery: Recovery) -> str:
    command = recovery.provenance.get("command")
    if isinstance(command, str):
        return code(command)
    configuration = recovery.provenance.get("configuration", {})
    learner, given = "None", ""
    if isinstance(configuration, dict):
        name = str(configuration.get("learner", "None"))
        given = ", ".join(f"{k}={v!r}" for k, v in configuration.items() if k != "learner")
        learner = "None" if name in ("None", "Automatic") else f"us.learners.{name}({given})"
    return code(f"us.recover(oracle, {learner}, seed={recovery.provenance.get('seed', 0)})")
