# SPDX-License-Identifier: Apache-2.0
"""Render what ``slurmscope report`` found, as UTF-8: one job, the tasks of an array, or several jobs."""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.errors import ConfigError
from slurmscope.model.archive import JobRow
from slurmscope.model.job_script import JobScript
from slurmscope.model.report import JobReport
from slurmscope.services.report.job_source import JobList

TABLE_FORMATS = ("text", "json", "csv")


def render_one(report: JobReport, url: str, format: str, *, width: int, use_color: bool) -> bytes:
    """Render the report of one job; times of the text are in the time zone of this host."""
    if format == "json":
        from slurmscope.reports.json import render_json

        return render_json(report) + b"\n"
    if format == "html":
        from slurmscope.reports.html import render_html

        return render_html(report, url=url).encode()
    if format == "pdf":
        from slurmscope.reports.pdf import render_pdf

        return render_pdf(report)
    if format == "seed":
        from slurmscope.reports.seed import render_seed_text

        return render_seed_text(report, pdf_url=url).encode()
    from slurmscope.reports.text import render_text

    return render_text(report, width=width, use_color=use_color, url=url, zone=None).encode()


def render_array(
    array_id: str, tasks: Sequence[JobRow], cluster: str, format: str, *, width: int, use_color: bool
) -> bytes:
    """List the tasks of an array; ``cluster`` is the one that was chosen, empty if none was."""
    if format != "text":
        raise ConfigError(
            f"{array_id} is a job array, which is shown as text, json or csv; name one of its tasks, such as "
            f"{tasks[0].shown_id}"
        )
    from slurmscope.reports.array_text import render_array_text

    return render_array_text(array_id, tasks, cluster=cluster, width=width, use_color=use_color).encode()


def render_array_json(reports: Sequence[JobReport]) -> bytes:
    """Return a list of the reports of the tasks."""
    from slurmscope.reports.json import render_json

    return b"[" + b",\n".join(map(render_json, reports)) + b"]\n"


def render_script(shown_id: str, script: JobScript, format: str, *, width: int, use_color: bool) -> bytes:
    """Render the script of a job, with what to check in it."""
    if format == "json":
        from slurmscope.reports.json import as_plain, encode_json

        return encode_json(as_plain(script)) + b"\n"
    from slurmscope.reports.script_text import render_script_text

    return render_script_text(shown_id, script, width=width, use_color=use_color).encode()


def render_jobs(
    found: JobList, format: str, *, width: int, use_color: bool, notes: Sequence[str] = (), nothing: str = ""
) -> bytes:
    """Render several jobs as a table; ``nothing`` is the sentence for none."""
    from slurmscope.reports import job_table

    if format not in TABLE_FORMATS:
        raise ConfigError(f"several jobs are shown as text, json or csv; name one job for {format}")
    if format == "json":
        return job_table.render_job_table_json(found.rows, is_cut=found.is_cut) + b"\n"
    if format == "csv":
        return job_table.render_job_table_csv(found.rows).encode()
    if not found.rows:
        return f"{nothing}\n".encode()
    text = job_table.render_job_table(
        found.rows, width=width, use_color=use_color, notes=notes, titles=_rule_title, zone=None
    )
    return text.encode()


def _rule_title(name: str) -> str:
    from slurmscope.rules import RULES

    return next((rule.title for rule in RULES if rule.id == name), name)
