# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope report``: what a job requested, used, and could change."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.roles import find_sections
from slurmscope.cli.terminal import USUAL_WIDTH, page_width, wants_color, write_bytes, write_text
from slurmscope.config import Config, own_environment
from slurmscope.errors import ConfigError, OutputError
from slurmscope.log import escape
from slurmscope.model.report import JobReport
from slurmscope.services.mail.mailing import link_to
from slurmscope.services.reporting.opening import no_archive, open_known_archive, read_report
from slurmscope.services.reporting.report_finder import is_shown_id
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.store.archive.settings import ArchiveSettings

FORMATS = ("text", "json", "html", "pdf", "seed")
TERMINAL_FORMATS = ("text", "seed")
"""Formats written in the encoding of the terminal."""


def make_command() -> click.Command:
    """Build the command."""
    job = click.Argument(["job_id"], metavar="JOBID")
    shape = click.Option(
        ["--format", "-f"],
        type=click.Choice(FORMATS),
        default="text",
        metavar="FORMAT",
        help="text, json, html, pdf, or seed (mail text of older tools). [default: text]",
    )
    output = click.Option(
        ["--output", "-o"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write to this file instead of standard output.",
    )
    color = click.Option(
        ["--color"],
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        metavar="WHEN",
        help="Color the text: auto, always or never. [default: auto]",
    )
    return SettingsCommand(
        "report",
        callback=_run,
        params=[job, shape, output, color, *options_for(find_sections("report"))],
        help="Show what a job requested and used, and suggest changes. JOBID is 12, 12_3 (array task) or 12+1.",
        examples=("slurmscope report 1234", "slurmscope report 1234 --format pdf --output 1234.pdf"),
        shown=("archive.url", "prometheus.url"),
    )


def find_report(job_id: str, given: dict[str, object]) -> tuple[JobReport, MailSettings]:
    """Return the report of a job and the mail settings; the user needs access to accounting or the archive."""
    config = load_config("report", given)
    if not is_shown_id(job_id):
        raise ConfigError(f"{escape(job_id)} is not a job id; write 12, 12_3 for an array task, or 12+1")
    report = read_report(config, own_environment(), job_id)
    if report is None:
        raise ConfigError(
            f"job {job_id} was not found, or you may not see it; check the job id{_archive_problem(config)}"
        )
    return report, config.of(MailSettings)


def _archive_problem(config: Config) -> str:
    """Report a configured archive that does not exist: the job may be in the one that was meant."""
    if config.is_default("archive.url"):
        return ""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        return f"; {no_archive(settings)}"
    archive.close()
    return ""


def _run(*, job_id: str, format: str, output: Path | None, color: str, **given: object) -> int:
    if format == "pdf" and output is None and sys.stdout.isatty():
        raise ConfigError("will not write a PDF to the terminal; name a file with --output")
    report, mail = find_report(job_id, given)
    url = link_to(report, mail)
    if output is None:
        _show(report, format, url, color)
        return 0
    try:
        output.write_bytes(_render(report, format, url, use_color=color == "always"))
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror}") from error
    return 0


def _show(report: JobReport, format: str, url: str, color: str) -> None:
    made = _render(report, format, url, width=page_width(), use_color=wants_color(color))
    if format in TERMINAL_FORMATS:
        write_text(made.decode())
    else:
        write_bytes(made)


def _render(report: JobReport, format: str, url: str, *, width: int = USUAL_WIDTH, use_color: bool = False) -> bytes:
    """Render the report, as UTF-8."""
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

    return render_text(report, width=width, use_color=use_color, url=url).encode()
