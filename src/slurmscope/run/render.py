# SPDX-License-Identifier: Apache-2.0
"""Render the report of a command as one self-contained HTML document, with the standard library alone."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from html import escape

from slurmscope.core.units import (
    NOT_MEASURED,
    format_bytes,
    format_count,
    format_energy,
    format_power,
    format_rate,
    format_ratio,
    format_seconds,
    format_some,
)
from slurmscope.jobs.render import contents, verdict
from slurmscope.jobs.render.formatting import LabelledText, format_time, show
from slurmscope.jobs.render.svg.charts import render_chart_svg
from slurmscope.jobs.render.tables import SourceSection, source_sections
from slurmscope.jobs.render.text import BLOCKS, TextPage, draw_sparkline, pad
from slurmscope.jobs.report import Chart
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS, Finding
from slurmscope.jobs.traced_run import RunReport

COMMAND_LIMIT = 300

_ORIGINS = {"cgroup": "cgroup limit", "ulimit": "ulimit -v", "machine": "memory of the machine"}


def title(made: RunReport) -> str:
    return show(shlex.join(made.run.command), COMMAND_LIMIT)


def rows(made: RunReport) -> tuple[LabelledText, ...]:
    summary, run = made.report.summary, made.run
    cpu, record = summary.cpu, made.report.record
    job = f", job {record.shown_id}" if record.job_id else ""
    found = (
        LabelledText("State", state(made)),
        LabelledText("Host", f"{', '.join(record.nodes)}{job}"),
        LabelledText("Started", format_time(run.start_seconds)),
        LabelledText("Wall time", precise(summary.run_seconds)),
        LabelledText(
            "CPU time",
            f"{precise(cpu.time.used)} (user {precise(cpu.user_seconds)}, system {precise(cpu.system_seconds)})",
        ),
        LabelledText("CPU efficiency", f"{format_ratio(cpu.time.ratio)} of {format_some(run.cores, 'core')}"),
        LabelledText("Memory, peak", _memory(made)),
        LabelledText("Processes, peak", f"{run.peak_processes:,} with {format_some(run.peak_threads, 'thread')}"),
        LabelledText("Read", _amount(summary.io.read_bytes, summary.io.reads, run.storage_read_bytes)),
        LabelledText("Written", _amount(summary.io.write_bytes, summary.io.writes, run.storage_write_bytes)),
        *([LabelledText("GPU", _gpu(made))] if summary.gpu.requested else []),
        *([LabelledText("Still running", _left(run.processes_left))] if run.processes_left else []),
    )
    return tuple(LabelledText(row.label, show(row.text)) for row in found)


def state(made: RunReport) -> str:
    run = made.run
    if run.exit_signal:
        return f"killed by {_signal_name(run.exit_signal)}"
    return f"exit code {run.exit_code}"


def curves(made: RunReport) -> tuple[Chart, ...]:
    return tuple(chart for chart in made.report.charts if len(chart.lines) == 1)


def peak_text(chart: Chart) -> str:
    """Format the highest value of a small curve."""
    peak = max((value for value in chart.lines[0].values if value is not None), default=None)
    if chart.unit == "cores":
        return f"{format_count(peak)} cores" if peak != 1 else "1 core"
    if chart.unit == "ratio":
        return format_ratio(peak)
    if chart.unit == "watts":
        return format_power(peak)
    return format_rate(peak) if chart.unit == "bytes/s" else format_bytes(peak)


def no_findings(made: RunReport) -> str:
    if made.report.summary.run_seconds < MIN_JUDGED_SECONDS:
        return f"Too short to judge: most rules need {format_seconds(MIN_JUDGED_SECONDS)}."
    return "No findings: the measurements show nothing to change."


def precise(seconds: float | None) -> str:
    """Format a duration; below a minute with hundredths of a second."""
    if seconds is not None and 0 < seconds < 0.005:
        return "under 0.01 s"
    return f"{seconds:.2f} s" if seconds is not None and 0 <= seconds < 60 else format_seconds(seconds)


def _memory(made: RunReport) -> str:
    peak, limit = made.report.summary.memory.working_peak_bytes, made.run.memory_limit_bytes
    if peak is None or not limit:
        return format_bytes(peak)
    origin = _ORIGINS.get(made.run.memory_limit_origin, "limit")
    return f"{format_bytes(peak)} of {format_bytes(limit)} ({format_ratio(peak / limit)}; {origin})"


def _amount(amount: float | None, calls: float | None, storage: float | None) -> str:
    if amount is None:
        return NOT_MEASURED
    return f"{format_bytes(amount)} in {format_some(calls or 0, 'call')}; storage {format_bytes(storage)}"


def _gpu(made: RunReport) -> str:
    gpu = made.report.summary.gpu
    use = f"{format_ratio(gpu.mean_utilization)} of {format_some(gpu.requested, 'GPU')}"
    energy = f"; {format_energy(gpu.work.energy_joules)}" if gpu.work.energy_joules is not None else ""
    return f"{use}; memory {format_bytes(gpu.peak_memory_bytes)}{energy}"


def _left(count: int) -> str:
    return f"{format_some(count, 'process', 'processes')}, counted until the command ended"


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


LABEL_COLUMNS = 16
CURVE_COLUMNS = 40


def render_run_text(made: RunReport, *, width: int = 80, use_color: bool = False, marks: str = BLOCKS) -> str:
    """Return the report in lines of at most ``width`` columns; ``marks`` are the characters of curves."""
    page = TextPage(width, use_color=use_color)
    lines = [
        *page.top(title(made)),
        *page.rows(rows(made)),
        *_curves(made, page, marks),
        *page.heading("Findings"),
        *(page.findings(verdict.findings(made.report), no_findings(made))),
        *(line for section in source_sections(made.report) for line in page.source(section)),
        *page.missing(made.report),
    ]
    return "\n".join(lines) + "\n"


def _curves(made: RunReport, page: TextPage, marks: str) -> Iterator[str]:
    drawn = curves(made)
    if drawn:
        yield ""
    columns = min(CURVE_COLUMNS, page.width - LABEL_COLUMNS - 24)
    for chart in drawn:
        curve = draw_sparkline(chart.lines[0].values, columns, marks)
        yield f"  {pad(chart.title, LABEL_COLUMNS)}  {pad(curve, columns)}  {peak_text(chart)}"


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
    name = escape(title(made))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>",
        *_rows(made),
        "<h2>Findings</h2>",
        *_findings(made),
        *(line for section in source_sections(made.report) for line in _table(section)),
        *_charts(made),
        *_missing(made),
        f"</main>\n<footer><p>Made by slurmscope at {format_time(made.report.made_seconds)}.</p></footer>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _rows(made: RunReport) -> Iterator[str]:
    yield "<table>\n<tbody>"
    for row in rows(made):
        yield f'<tr><th scope="row">{escape(row.label)}</th><td>{escape(row.text)}</td></tr>'
    yield "</tbody>\n</table>"


def _findings(made: RunReport) -> Iterator[str]:
    found = verdict.findings(made.report)
    if not found:
        yield f"<p>{escape(no_findings(made))}</p>"
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


def _table(section: SourceSection) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>\n<table>\n<thead>"
    yield f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in section.table.head)}</tr>\n</thead>\n<tbody>"
    for row in section.table.rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody>\n</table>"
    yield from (f"<p>{escape(text)}</p>" for text in (section.table.note, *section.sentences) if text)


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
