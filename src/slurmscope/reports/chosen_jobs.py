# SPDX-License-Identifier: Apache-2.0
"""Find the jobs that a user of ``slurmscope report`` chose, and render their report, table or script."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import Config
from slurmscope.core.errors import AmbiguousName, ConfigError, SlurmscopeError, SourceError
from slurmscope.core.units import format_seconds
from slurmscope.jobs.js1 import write_js1
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.compat import render_seff
from slurmscope.jobs.report import EarlierRun, JobReport
from slurmscope.jobs.runs import run_of, runs_of_job
from slurmscope.jobs.script import JobScript
from slurmscope.reports.job_choice import JobChoice
from slurmscope.reports.local_jobs import JobSource, ListedJobs
from slurmscope.reports.settings import ClientSettings, MailSettings, link_to, portal_link
from slurmscope.reports.sources import no_archive, open_known_archive

TABLE_FORMATS = ("text", "json", "csv")
SCRIPT_FORMATS = ("text", "json")
MAX_RUNS, MAX_PARTS = 100, 20

Render = Callable[..., bytes]
"""Render what was found; takes ``width`` and ``use_color``."""


@contextmanager
def open_jobs(config: Config, environment: Mapping[str, str]) -> Iterator[JobSource]:
    """Open the portal if one is configured, else the sources of this host."""
    settings = config.of(ClientSettings)
    if settings.url is None:
        from slurmscope.reports.local_jobs import open_local_jobs

        with open_local_jobs(config, environment) as jobs:
            yield jobs
        return
    from slurmscope.reports.portal_jobs import PortalClient, PortalJobs

    yield PortalJobs(PortalClient(settings.url, settings, environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenJobs:
    """The chosen jobs, where they are read from, and the format of the output."""

    source: JobSource
    config: Config
    choice: JobChoice
    wanted: JobFilter
    format: str
    is_full: bool = False
    """Whether the text of one job is the whole report, not its summary."""

    def find(self, limit: int) -> Render:
        """Read what was chosen: one job or array as its report, anything else as a table of at most so many rows."""
        choice, wanted = self.choice, self.wanted
        is_filtered = bool(wanted.state) or wanted.since_seconds is not None
        if len(choice.shown_ids) == 1 and not is_filtered and self.format != "csv":
            return self._find_one(choice.shown_ids[0], wanted.cluster)
        if choice.is_own:
            wanted = replace(wanted, user=self.source.user())
        found = self.source.list_jobs(wanted, 1 if choice.is_last else limit)
        if choice.is_last and found.rows and self.format != "csv":
            return self._find_last(found.rows[0])
        if choice.shown_ids and not found.rows:
            problem = find_archive_problem(self.config)
            raise ConfigError(f"none of these jobs was found, or you may not see them{problem}")
        nothing = _no_jobs(wanted, is_filtered=is_filtered)
        return partial(render_jobs, found, self.format, notes=list(self._notes(found)), nothing=nothing)

    def find_script(self) -> Render:
        """Read the script of one job."""
        choice, wanted = self.choice, self.wanted
        if self.format not in SCRIPT_FORMATS or not (choice.is_last or len(choice.shown_ids) == 1):
            raise ConfigError("--script shows the script of one job, as text or json")
        shown_id, cluster = choice.shown_ids[0] if choice.shown_ids else "", wanted.cluster
        if choice.is_last and (found := self.source.list_jobs(replace(wanted, user=self.source.user()), 1).rows):
            shown_id, cluster = found[0].shown_id, found[0].cluster
        report = self.source.report(shown_id, cluster) if shown_id else None
        if report is None:
            raise not_found(shown_id, cluster, self.config) if shown_id else ConfigError("you have no jobs")
        script = self.source.read_script(report, cluster)
        if script is None:
            raise ConfigError(
                f"Slurm has not stored the script of job {shown_id}, or you may not see it; it stores scripts if "
                "AccountingStoreFlags has job_script, and shows them to the owner"
            )
        return partial(render_script, shown_id, script, self.format)

    def _notes(self, found: ListedJobs) -> Iterator[str]:
        if found.problem:
            yield found.problem
        if self.choice.shown_ids:
            yield f"{len(found.rows):,} jobs were found for {len(self.choice.shown_ids):,} job IDs."
        elif found.is_cut and not self.choice.is_last:
            yield f"Only the last {len(found.rows):,} jobs are shown; see --limit."
        for row in sorted(found.rows, key=lambda row: not row.rules)[:1]:
            is_named = self.wanted.cluster or len({row.cluster for row in found.rows}) > 1
            chosen = f" -M {row.cluster}" if is_named else ""
            yield f"The report of one job: slurmscope report {row.shown_id}{chosen}"

    def _find_last(self, row: JobRow) -> Render:
        """Return the report of the user's last job; another cluster than the chosen one may have one of the same ID."""
        try:
            return self._find_one(row.shown_id, self.wanted.cluster)
        except AmbiguousName:
            return self._find_one(row.shown_id, row.cluster)

    def _find_one(self, shown_id: str, cluster: str) -> Render:
        """Return the report of a job, or the tasks of an array."""
        source = self.source
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
            return self._render_parts(report, shown_id, cluster)
        if not tasks:
            raise not_found(shown_id, cluster, self.config)
        if self.format == "json":
            made = render_array_json(source.array_reports(int(shown_id), cluster))
            return lambda **_options: made
        return partial(render_array, shown_id, tasks, cluster, self.format)

    def _render_parts(self, report: JobReport, shown_id: str, cluster: str) -> Render:
        """Render the report of a job, or of all parts of a heterogeneous one, with the earlier runs of each."""
        record = report.record
        wanted = JobFilter(cluster=record.cluster, shown_ids=(shown_id,))
        is_single = record.restarts == 0 and record.het_job_id is None
        try:
            runs = () if is_single else self.source.list_runs(wanted, MAX_RUNS).rows
        except SlurmscopeError:  # the report is useful without them
            runs = ()
        others = sorted({row.shown_id for row in runs if row.het_job_id == record.het_job_id is not None})
        ids = others[:MAX_PARTS] if shown_id.isdecimal() and len(others) > 1 else ()
        parts = [part for part in (self.source.report(each, record.cluster) for each in ids) if part]
        reports = [replace(each, earlier_runs=_find_earlier(each.record, runs)) for each in parts or [report]]
        if self.format == "json" and parts:
            made = render_array_json(reports)
            return lambda **_options: made
        if self.format != "text":
            link = self._link(reports[0], reports[0].record.shown_id, cluster)
            return partial(render_one, reports[0], link, self.format, reports[1:])
        renders = [self._render_text(each, cluster) for each in reports]
        return lambda **options: b"\n".join(render(**options) for render in renders)

    def _render_text(self, report: JobReport, cluster: str) -> Render:
        from slurmscope.jobs.render.brief import render_brief
        from slurmscope.jobs.render.text import render_text

        link = self._link(report, report.record.shown_id, cluster)
        known = self.source.explain_pending(report, cluster) if report.record.is_pending else None
        # Times are in the time zone of this host.
        make = partial(render_text if self.is_full else render_brief, report, url=link, zone=None, known=known)
        return partial(render_one_text, make, () if self.is_full else report.earlier_runs or ())

    def _link(self, report: JobReport, shown_id: str, cluster: str) -> str:
        link = link_to(report, self.config.of(MailSettings), self.source.clusters(), chosen=cluster)
        return link or portal_link(shown_id, self.config.of(ClientSettings), cluster=cluster)


def not_found(job_id: str, cluster: str, config: Config) -> ConfigError:
    """Return the error for a job that does not exist, or that the user may not see."""
    given = f"the job ID and -M {cluster}" if cluster else "the job ID"
    problem = find_archive_problem(config)
    return ConfigError(f"job {job_id} was not found, or you may not see it; check {given}{problem}")


def find_archive_problem(config: Config) -> str:
    """Report a configured archive that does not exist: the job may be in the one that was meant."""
    if config.is_default("archive.url") or config.of(ClientSettings).url is not None:
        return ""
    settings = config.of(ArchiveSettings)
    archive = open_known_archive(settings)
    if archive is None:
        return f"; {no_archive(settings)}"
    archive.close()
    return ""


def _no_jobs(wanted: JobFilter, *, is_filtered: bool) -> str:
    chosen = " that match the filter" if is_filtered else ""
    return f"There are no jobs of {wanted.user}{chosen}." if wanted.user else "There are no such jobs."


def render_one(report: JobReport, url: str, format: str, parts: Sequence[JobReport] = (), **_options: object) -> bytes:
    """Render the report of one job as a file, with the other parts of a heterogeneous one."""
    if format == "json":
        from slurmscope.jobs.render.json import render_json

        return render_json(report) + b"\n"
    if format == "html":
        from slurmscope.jobs.render.html import render_html

        return render_html(report, url=url, parts=parts).encode()
    if format == "pdf":
        from slurmscope.jobs.render.pdf import render_pdf

        return render_pdf(report, parts)
    if format == "seff":
        return "\n".join(render_seff(each, group=_group_of(each.record.uid)) for each in (report, *parts)).encode()
    if format == "js1":
        return "".join(f"{write_js1(each.summary)}\n" for each in (report, *parts)).encode()
    from slurmscope.jobs.render.compat import render_seed_text

    return render_seed_text(report, pdf_url=url, parts=parts).encode()


def _group_of(uid: int | None) -> str:
    """Return the name of a user's primary group; empty where this host does not know it."""
    try:
        return "" if uid is None else grp.getgrgid(pwd.getpwuid(uid).pw_gid).gr_name
    except KeyError:
        return ""


def render_one_text(make: Callable[..., str], earlier: Sequence[EarlierRun], *, width: int, use_color: bool) -> bytes:
    """Render the report of one job as text, followed by its earlier runs."""
    from slurmscope.jobs.render.formatting import format_time, show
    from slurmscope.jobs.render.text import wrap

    said = [
        f"An earlier run of this job started at {format_time(run.start_seconds, None)} and was "
        f"{show(run.state, 20)} after {format_seconds(run.run_seconds)}."
        for run in earlier
    ]
    lines = "".join(f"{line}\n" for sentence in said for line in wrap(sentence, width))
    return (make(width=width, use_color=use_color) + lines).encode()


def _find_earlier(record: JobRecord, runs: Sequence[JobRow]) -> tuple[EarlierRun, ...]:
    """Return the runs of a requeued job before this one."""
    row = next((row for row in runs if run_of(row) == run_of(record)), None)
    earlier = runs_of_job(row, runs)[1:] if row else ()
    return tuple(
        EarlierRun(state=run.state, start_seconds=run.start_seconds, run_seconds=run.run_seconds)
        for run in earlier
        if run.start_seconds is not None
    )


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
    found: ListedJobs, format: str, *, width: int, use_color: bool, notes: Sequence[str] = (), nothing: str = ""
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
