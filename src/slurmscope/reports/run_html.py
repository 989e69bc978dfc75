# SPDX-License-Identifier: Apache-2.0
"""Render the report of a command as one self-contained HTML document, with the standard library alone."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from slurmscope.model.finding import Finding
from slurmscope.model.traced_run import RunReport
from slurmscope.reports import contents, run_contents
from slurmscope.reports.formatting import format_time, show
from slurmscope.reports.svg.charts import render_chart_svg

_STYLE = """
body { font: 16px/1.5 system-ui, Helvetica, Arial, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
  color: #24292f; background: #ffffff }
h1 { font-size: 1.3rem; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin-top: 2rem }
th { text-align: left; padding-right: 1.5rem; vertical-align: top; font-weight: 600 }
figure { margin: 1rem 0 }
svg { max-width: 100%; height: auto }
code { background: #f0f2f4; padding: 0.1rem 0.3rem }
.critical { color: #b3261e } .warning { color: #8f5200 } .info { color: #0067a3 }
"""


def render_run_html(made: RunReport) -> str:
    """Return a document with charts; every text is escaped."""
    name = escape(run_contents.title(made))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>",
        *_rows(made),
        "<h2>Findings</h2>",
        *_findings(made),
        *_charts(made),
        *_missing(made),
        f"</main>\n<footer><p>Made by slurmscope at {format_time(made.report.made_seconds)}.</p></footer>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _rows(made: RunReport) -> Iterator[str]:
    yield "<table>\n<tbody>"
    for row in run_contents.rows(made):
        yield f'<tr><th scope="row">{escape(row.label)}</th><td>{escape(row.text)}</td></tr>'
    yield "</tbody>\n</table>"


def _findings(made: RunReport) -> Iterator[str]:
    found = contents.findings(made.report)
    if not found:
        yield f"<p>{escape(run_contents.no_findings(made))}</p>"
    for finding in found:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    severity = finding.severity.value
    yield f'<h3><span class="{severity}">{severity}</span> {escape(finding.title)}</h3>'
    yield f"<p>{escape(finding.explanation)}</p>\n<p>{escape(finding.advice)}</p>"
    if finding.suggestion:
        yield f"<p><code>{escape(finding.suggestion)}</code></p>"
    if finding.consequences:
        yield f"<p>{contents.CONSEQUENCES}</p>\n<ul>"
        yield from (f"<li>{escape(f'{each.title}. {each.explanation}')}</li>" for each in finding.consequences)
        yield "</ul>"


def _charts(made: RunReport) -> Iterator[str]:
    if made.report.charts:
        yield "<h2>Charts</h2>"
    for chart in made.report.charts:
        yield f"<figure>\n{render_chart_svg(chart)}\n<figcaption>{escape(show(chart.help))}</figcaption>\n</figure>"


def _missing(made: RunReport) -> Iterator[str]:
    sentences = contents.missing(made.report)
    if sentences:
        yield "<h2>Missing data</h2>\n<ul>"
        yield from (f"<li>{escape(sentence)}</li>" for sentence in sentences)
        yield "</ul>"
