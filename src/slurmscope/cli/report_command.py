# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope report``: what a job did with what it asked for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.config import own_environment
from slurmscope.errors import ConfigError, OutputError
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import EVERYTHING
from slurmscope.services.mailing import link_to
from slurmscope.services.report_settings import MailSettings
from slurmscope.services.reporting import open_reporting

FORMATS = ("text", "json", "html", "pdf", "seed")
WIDTHS = (40, 120)


def make_command() -> click.Command:
    """Build the command."""
    job = click.Argument(["job_id"], metavar="JOBID")
    shape = click.Option(
        ["--format", "-f"],
        type=click.Choice(FORMATS),
        default="text",
        help="Form of the report; seed is the mail text of older tools, which ends in WARNING=true or false.",
    )
    output = click.Option(
        ["--output", "-o"], type=click.Path(path_type=Path), help="Write into this file instead of standard output."
    )
    color = click.Option(
        ["--color"], type=click.Choice(["auto", "always", "never"]), default="auto", help="Whether text has colours."
    )
    return SettingsCommand(
        "report",
        callback=_run,
        params=[job, shape, output, color, *options_for(find_sections("report"))],
        help="Show what a job asked for, what it used, and what to change. JOBID is 12, 12_3 (array task) or 12+1.",
    )


def find_report(job_id: str, given: dict[str, object]) -> tuple[JobReport, MailSettings]:
    """Return the report of a job for whoever may read accounting and the archive, and how mails are sent."""
    config = load_config("report", given)
    with open_reporting(config, own_environment()) as reporting:
        report = reporting.desk.report(EVERYTHING, job_id)
    if report is None:
        raise ConfigError(f"there is no job {job_id}, or Slurm does not show it to you")
    return report, config.of(MailSettings)


def _run(*, job_id: str, format: str, output: Path | None, color: str, **given: object) -> int:
    if format == "pdf" and output is None and sys.stdout.isatty():
        raise ConfigError("a PDF is not for the terminal: name a file with --output")
    report, mail = find_report(job_id, given)
    made = _render(report, format, link_to(report, mail), color=color)
    if output is None:
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()
        return 0
    try:
        output.write_bytes(made)
    except OSError as error:
        raise OutputError(f"{output} could not be written: {error.strerror}") from error
    return 0


def _render(report: JobReport, format: str, url: str, *, color: str) -> bytes:
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
        from slurmscope.reports.seed_text import render_seed_text

        return _encoded(render_seed_text(report, pdf_url=url))
    from slurmscope.reports.text import render_text

    width = min(max(shutil.get_terminal_size((80, 24)).columns, WIDTHS[0]), WIDTHS[1]) if sys.stdout.isatty() else 80
    use_color = color == "always" or (color == "auto" and sys.stdout.isatty() and not own_environment().get("NO_COLOR"))
    return _encoded(render_text(report, width=width, use_color=use_color, url=url))


def _encoded(text: str) -> bytes:
    """Write in the terminal's own encoding; what it cannot show becomes a question mark."""
    ended = text if text.endswith("\n") else text + "\n"
    return ended.encode(sys.stdout.encoding or "utf-8", "replace")
