# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope report``: what a job requested, used, and could change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.report_format import choose_format, format_option
from slurmscope.cli.roles import find_sections
from slurmscope.cli.terminal import USUAL_WIDTH, page_width, wants_color, write_bytes, write_text
from slurmscope.config import Config, own_environment
from slurmscope.errors import ConfigError, OutputError, SourceError
from slurmscope.log import escape
from slurmscope.model.report import JobReport
from slurmscope.services.mail.mailing import link_to
from slurmscope.services.reporting.opening import no_archive, open_known_archive, read_array, read_report
from slurmscope.services.reporting.report_finder import is_shown_id
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.store.archive.settings import ArchiveSettings

FORMATS = ("text", "json", "html", "pdf", "seed")
TERMINAL_FORMATS = ("text", "seed")
"""Formats written in the encoding of the terminal."""


def make_command() -> click.Command:
    """Build the command."""
    job = click.Argument(["job_id"], metavar="JOBID")
    shape = format_option(FORMATS, "text, json, html, pdf, or seed (mail text of older tools)")
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
        help="Show what a job requested and used, and suggest changes. JOBID is 12, 12_3 (array task) or 12+1; "
        "the ID of an array lists its tasks.",
        examples=("slurmscope report 1234", "slurmscope report 1234 --output 1234.pdf"),
        shown=("archive.url", "prometheus.url"),
    )


def find_report(job_id: str, given: dict[str, object]) -> tuple[JobReport, MailSettings]:
    """Return the report of a job and the mail settings; the user needs access to accounting or the archive."""
    config = _load(job_id, given)
    report = read_report(config, own_environment(), job_id)
    if report is None:
        raise _not_found(job_id, config)
    return report, config.of(MailSettings)


def _load(job_id: str, given: dict[str, object]) -> Config:
    config = load_config("report", given)
    if not is_shown_id(job_id):
        raise ConfigError(f"{escape(job_id)} is not a job ID; write 12, 12_3 for an array task, or 12+1")
    return config


def _not_found(job_id: str, config: Config) -> ConfigError:
    return ConfigError(f"job {job_id} was not found, or you may not see it; check the job ID{_archive_problem(config)}")


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


def _run(*, job_id: str, format: str | None, output: Path | None, color: str, **given: object) -> int:
    shape = choose_format(format, output, FORMATS)
    if shape == "pdf" and output is None and sys.stdout.isatty():
        raise ConfigError("will not write a PDF to the terminal; name a file with --output")
    config = _load(job_id, given)
    report, tasks = _read_any(job_id, config)
    render = partial(_render_one, report, link_to(report, config.of(MailSettings))) if report else None
    if len(tasks) > 1 or render is None:
        render = partial(_render_array, job_id, tasks)
    if output is None:
        _show(render(shape, width=page_width(), use_color=wants_color(color)), shape)
        return 0
    try:
        output.write_bytes(render(shape, width=USUAL_WIDTH, use_color=color == "always"))
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror}") from error
    return 0


def _read_any(job_id: str, config: Config) -> tuple[JobReport | None, tuple[JobReport, ...]]:
    """Return the report of a job, or those of the tasks of an array."""
    environment = own_environment()
    try:
        report = read_report(config, environment, job_id)
    except SourceError:
        if tasks := read_array(config, environment, job_id):
            return None, tasks
        raise
    is_array = report is None or report.record.is_array_rest
    tasks = read_array(config, environment, job_id) if is_array else ()
    if report is None and not tasks:
        raise _not_found(job_id, config)
    return report, tasks


def _show(made: bytes, format: str) -> None:
    if format in TERMINAL_FORMATS:
        write_text(made.decode())
    else:
        write_bytes(made)


def _render_array(array_id: str, tasks: Sequence[JobReport], format: str, *, width: int, use_color: bool) -> bytes:
    """List the tasks of an array, as UTF-8."""
    if format == "json":
        from slurmscope.reports.json import render_json

        return b"[" + b",\n".join(map(render_json, tasks)) + b"]\n"
    if format != "text":
        raise ConfigError(
            f"{array_id} is a job array, which is shown as text or json; name one of its tasks, such as "
            f"{tasks[0].record.shown_id}"
        )
    from slurmscope.reports.array_text import render_array_text

    return render_array_text(array_id, tasks, width=width, use_color=use_color).encode()


def _render_one(report: JobReport, url: str, format: str, *, width: int, use_color: bool) -> bytes:
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
