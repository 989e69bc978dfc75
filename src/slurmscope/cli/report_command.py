# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope report``: what jobs requested, used, and could change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import (
    USUAL_WIDTH,
    choose_format,
    format_option,
    page_width,
    wants_color,
    write_bytes,
    write_text,
)
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.core.errors import AmbiguousName, ConfigError, OutputError, SourceError
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.script import JobScript
from slurmscope.mail.mail import link_to
from slurmscope.reports.find import is_shown_id
from slurmscope.reports.job_choice import JobChoice, parse_choice, parse_cluster, parse_since, parse_state
from slurmscope.reports.local_jobs import JobList, JobSource
from slurmscope.reports.settings import ClientSettings, MailSettings, portal_link
from slurmscope.reports.sources import no_archive, open_known_archive, read_report

TABLE_FORMATS = ("text", "json", "csv")


def render_one(report: JobReport, url: str, format: str, *, width: int, use_color: bool) -> bytes:
    """Render the report of one job; times of the text are in the time zone of this host."""
    if format == "json":
        from slurmscope.jobs.render.json import render_json

        return render_json(report) + b"\n"
    if format == "html":
        from slurmscope.jobs.render.html import render_html

        return render_html(report, url=url).encode()
    if format == "pdf":
        from slurmscope.jobs.render.pdf import render_pdf

        return render_pdf(report)
    if format == "seed":
        from slurmscope.jobs.render.seed import render_seed_text

        return render_seed_text(report, pdf_url=url).encode()
    from slurmscope.jobs.render.text import render_text

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
    from slurmscope.reports.job_table import render_array_text

    return render_array_text(array_id, tasks, cluster=cluster, width=width, use_color=use_color).encode()


def render_array_json(reports: Sequence[JobReport]) -> bytes:
    """Return a list of the reports of the tasks."""
    from slurmscope.jobs.render.json import render_json

    return b"[" + b",\n".join(map(render_json, reports)) + b"]\n"


def render_script(shown_id: str, script: JobScript, format: str, *, width: int, use_color: bool) -> bytes:
    """Render the script of a job, with what to check in it."""
    if format == "json":
        from slurmscope.jobs.render.json import as_plain, encode_json

        return encode_json(as_plain(script)) + b"\n"
    from slurmscope.jobs.script import render_script_text

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
    from slurmscope.jobs.findings import RULES

    return next((rule.title for rule in RULES if rule.id == name), name)


FORMATS = ("text", "json", "csv", "html", "pdf", "seed")
SCRIPT_FORMATS = ("text", "json")
TERMINAL_FORMATS = ("text", "seed")
"""Formats written in the encoding of the terminal."""
MAX_ROWS = 500

Render = Callable[..., bytes]
"""Render what was found; takes ``format``, ``width`` and ``use_color``."""


def make_command() -> click.Command:
    """Build the command."""
    jobs = click.Argument(["jobs"], nargs=-1, metavar="[JOB]...")
    shape = format_option(FORMATS, "text, json, csv (a table), html, pdf, or seed (mail text)")
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
        params=[jobs, *_filters(), shape, output, color, *options_for(find_sections("report"))],
        help="Show what a job requested and used, and suggest changes; several jobs as a table. JOB is 12, 12_3 (array "
        "task), 12_[1-5], 100-120, me (your jobs, the default) or last (your last job).",
        examples=("slurmscope report last", "slurmscope report me --since 7d --state FAILED"),
        shown=("portal.url",),
    )


def _filters() -> list[click.Parameter]:
    return [
        cluster_option(),
        click.Option(["--since"], metavar="TIME", help="Only jobs submitted since 12h, 7d or 2026-03-31T12:00."),
        click.Option(["--state"], metavar="STATE", help="Only jobs in this state, such as FAILED or RUNNING."),
        click.Option(
            ["--limit"],
            type=click.IntRange(1, MAX_ROWS),
            default=20,
            metavar="N",
            help="Maximum jobs in a table.",
            show_default=True,
        ),
        click.Option(["--script"], is_flag=True, help="Show the job script that Slurm stored, and check it."),
    ]


def cluster_option() -> click.Option:
    """Return the option that chooses a cluster, as Slurm's own commands name it."""
    return click.Option(
        ["-M", "--clusters", "cluster"],
        metavar="NAME",
        help="Cluster of the jobs, where there are several.",
    )


def find_report(job_id: str, cluster: str | None, given: dict[str, object]) -> tuple[JobReport, Config]:
    """Return the report of a job and the configuration; the user needs access to accounting or the archive."""
    chosen = _parse_cluster(cluster, given)
    config = load_config("report", given)
    if not is_shown_id(job_id):
        parse_choice([job_id])
        raise ConfigError("expected the ID of one job, such as 12, 12_3 or 12+1")
    with _choose_cluster():
        report = read_report(config, own_environment(), job_id, cluster=chosen)
    if report is None:
        raise _not_found(job_id, chosen, config)
    return report, config


def _run(  # noqa: PLR0913 - one per option
    *,
    jobs: tuple[str, ...],
    cluster: str | None,
    format: str | None,
    output: Path | None,
    color: str,
    since: str | None,
    state: str | None,
    limit: int,
    script: bool,
    **given: object,
) -> int:
    shape = choose_format(format, output, FORMATS)
    if shape == "pdf" and output is None and sys.stdout.isatty():
        raise ConfigError("will not write a PDF to the terminal; name a file with --output")
    choice = parse_choice(jobs)
    wanted = JobFilter(
        cluster=_parse_cluster(cluster, given),
        shown_ids=choice.shown_ids,
        state=parse_state(state) if state else "",
        since_seconds=parse_since(since, time.time()) if since else None,
    )
    config = load_config("report", given)
    with _open_jobs(config) as source, _choose_cluster():
        limit = max(limit, len(choice.shown_ids))
        if script:
            render = _find_script(source, config, choice, wanted, shape)
        else:
            render = _find(source, config, choice, wanted, limit=limit, shape=shape)
    _write(partial(render, shape), shape, output, color)
    return 0


def _parse_cluster(cluster: str | None, given: dict[str, object]) -> str:
    """Parse the chosen cluster, whose accounting is read then; empty if none was chosen."""
    chosen = parse_cluster(cluster) if cluster else ""
    if chosen and not given.get("accounting_clusters"):
        given["accounting_clusters"] = (chosen,)
    return chosen


@contextmanager
def _choose_cluster() -> Iterator[None]:
    """Name the option that chooses a cluster where a job ID is that of several jobs."""
    try:
        yield
    except AmbiguousName as error:
        raise ConfigError(f"{error}; choose one with -M, such as -M {error.clusters[0]}") from error


@contextmanager
def _open_jobs(config: Config) -> Iterator[JobSource]:
    """Open the portal if one is configured, else the sources of this host."""
    settings = config.of(ClientSettings)
    if settings.url is None:
        from slurmscope.reports.local_jobs import open_local_jobs

        with open_local_jobs(config, own_environment()) as jobs:
            yield jobs
        return
    from slurmscope.reports.portal_jobs import PortalClient, PortalJobs

    yield PortalJobs(PortalClient(settings.url, settings, own_environment()))


def _find(source: JobSource, config: Config, choice: JobChoice, wanted: JobFilter, *, limit: int, shape: str) -> Render:
    """Read what was chosen: one job or array as its report, anything else as a table."""
    is_filtered = bool(wanted.state) or wanted.since_seconds is not None
    if len(choice.shown_ids) == 1 and not is_filtered and shape != "csv":
        return _find_one(source, choice.shown_ids[0], wanted.cluster, config, shape)
    if choice.is_own:
        wanted = replace(wanted, user=source.user())
    found = source.list_jobs(wanted, 1 if choice.is_last else limit)
    if choice.is_last and found.rows and shape != "csv":
        return _find_last(source, found.rows[0], wanted.cluster, config, shape)
    if choice.shown_ids and not found.rows:
        raise ConfigError(f"none of these jobs was found, or you may not see them{_archive_problem(config)}")
    notes = [found.problem] if found.problem else []
    if choice.shown_ids:
        notes.append(f"{len(found.rows):,} jobs were found for {len(choice.shown_ids):,} job IDs.")
    elif found.is_cut and not choice.is_last:
        notes.append(f"Only the last {len(found.rows):,} jobs are shown; see --limit.")
    notes += _suggest_report(found.rows, wanted.cluster)
    return partial(render_jobs, found, notes=notes, nothing=_no_jobs(wanted, is_filtered=is_filtered))


def _suggest_report(rows: Sequence[JobRow], cluster: str) -> Iterator[str]:
    """Yield a command for one of the jobs, if there are any; ``cluster`` is the one that was chosen."""
    for row in sorted(rows, key=lambda row: not row.rules)[:1]:
        chosen = f" -M {row.cluster}" if cluster or len({row.cluster for row in rows}) > 1 else ""
        yield f"The report of one job: slurmscope report {row.shown_id}{chosen}"


def _find_last(source: JobSource, row: JobRow, cluster: str, config: Config, shape: str) -> Render:
    """Return the report of the user's last job; another cluster than the chosen one may have one of the same ID."""
    try:
        return _find_one(source, row.shown_id, cluster, config, shape)
    except AmbiguousName:
        return _find_one(source, row.shown_id, row.cluster, config, shape)


def _find_one(source: JobSource, shown_id: str, cluster: str, config: Config, shape: str) -> Render:
    """Return the report of a job, or the tasks of an array."""
    try:
        report = source.report(shown_id, cluster)
    except SourceError:
        # The tasks may be in the archive.
        report = None
        if not shown_id.isdecimal() or not source.read_array(int(shown_id), cluster).rows:
            raise
    is_array = shown_id.isdecimal() and (report is None or report.record.is_array_rest)
    tasks = source.read_array(int(shown_id), cluster).rows if is_array else ()
    if report and len(tasks) < 2:
        link = link_to(report, config.of(MailSettings), source.clusters(), chosen=cluster)
        return partial(render_one, report, link or portal_link(shown_id, config.of(ClientSettings), cluster=cluster))
    if not tasks:
        raise _not_found(shown_id, cluster, config)
    if shape == "json":
        made = render_array_json(source.array_reports(int(shown_id), cluster))
        return lambda _, **_options: made
    return partial(render_array, shown_id, tasks, cluster)


def _find_script(source: JobSource, config: Config, choice: JobChoice, wanted: JobFilter, shape: str) -> Render:
    """Return the script of one job."""
    if shape not in SCRIPT_FORMATS or not (choice.is_last or len(choice.shown_ids) == 1):
        raise ConfigError("--script shows the script of one job, as text or json")
    shown_id, cluster = choice.shown_ids[0] if choice.shown_ids else "", wanted.cluster
    if choice.is_last and (found := source.list_jobs(replace(wanted, user=source.user()), 1).rows):
        shown_id, cluster = found[0].shown_id, found[0].cluster
    report = source.report(shown_id, cluster) if shown_id else None
    if report is None:
        raise _not_found(shown_id, cluster, config) if shown_id else ConfigError("you have no jobs")
    script = source.read_script(report, cluster)
    if script is None:
        raise ConfigError(
            f"Slurm has not stored the script of job {shown_id}, or you may not see it; it stores scripts if "
            "AccountingStoreFlags has job_script, and shows them to the owner"
        )
    return partial(render_script, shown_id, script)


def _no_jobs(wanted: JobFilter, *, is_filtered: bool) -> str:
    chosen = " that match the filter" if is_filtered else ""
    return f"There are no jobs of {wanted.user}{chosen}." if wanted.user else "There are no such jobs."


def _not_found(job_id: str, cluster: str, config: Config) -> ConfigError:
    given = f"the job ID and -M {cluster}" if cluster else "the job ID"
    return ConfigError(f"job {job_id} was not found, or you may not see it; check {given}{_archive_problem(config)}")


def _archive_problem(config: Config) -> str:
    """Report a configured archive that does not exist: the job may be in the one that was meant."""
    if config.is_default("archive.url") or config.of(ClientSettings).url is not None:
        return ""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        return f"; {no_archive(settings)}"
    archive.close()
    return ""


def _write(render: Render, shape: str, output: Path | None, color: str) -> None:
    if output is not None:
        made = render(width=USUAL_WIDTH, use_color=color == "always")
        try:
            output.write_bytes(made)
        except OSError as error:
            raise OutputError(f"cannot write {output}: {error.strerror}") from error
        return
    made = render(width=page_width(), use_color=wants_color(color))
    if shape in TERMINAL_FORMATS:
        write_text(made.decode())
    else:
        write_bytes(made)
