# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope report``, what jobs used and could change, and ``slurmscope compare`` for two reports."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from slurmscope.archive.interface import JobFilter
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import (
    USUAL_WIDTH,
    choose_format,
    flag,
    format_examples,
    format_option,
    option,
    page_width,
    wants_color,
    write_bytes,
    write_text,
)
from slurmscope.cli.roles import find_sections
from slurmscope.core.config import Config, own_environment
from slurmscope.core.errors import AmbiguousName, ConfigError, OutputError, SourceError
from slurmscope.core.log import escape
from slurmscope.jobs.report import JobReport
from slurmscope.reports.chosen_jobs import ChosenJobs, Render, not_found, open_jobs
from slurmscope.reports.find import is_shown_id
from slurmscope.reports.job_choice import parse_choice, parse_cluster, parse_since, parse_state
from slurmscope.reports.local_jobs import read_report
from slurmscope.reports.settings import ClientSettings
from slurmscope.run.comparison import compare, is_report, render_comparison_json, render_comparison_text

FORMATS = ("text", "json", "csv", "html", "pdf", "seff", "js1", "seed")
TERMINAL_FORMATS = ("text", "seff", "js1", "seed")
"""Formats written in the encoding of the terminal."""
MAX_ROWS = 500
_NO_SLURM = (
    "Without access to Slurm's accounting, read reports from the portal: --portal.url https://HOST, or "
    "SLURMSCOPE_PORTAL_URL."
)


def make_report_command() -> click.Command:
    jobs = click.Argument(["jobs"], nargs=-1, metavar="[JOB]...")
    shape = format_option(FORMATS, "text, json, csv (a table), html, pdf, seff, js1 or seed")
    path = click.Path(path_type=Path)
    output = option("--output -o", "FILE", "Write to this file instead of standard output.", path)
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
        help="Show what a job requested and used, and suggest changes. JOB is 12, 12_3, 12_[1-5], 100-120, me (your "
        "jobs, the default) or last.",
        examples=("slurmscope report last", "slurmscope report me --since 7d --state FAILED"),
        shown=("portal.url",),
    )


def _filters() -> list[click.Parameter]:
    return [
        cluster_option(),
        option("--since", "TIME", "Only jobs submitted since 12h, 7d or 2026-03-31T12:00."),
        option("--state", "STATE", "Only jobs in this state, such as FAILED or RUNNING."),
        option("--limit", "N", "Maximum jobs in a table.", click.IntRange(1, MAX_ROWS), default=20),
        flag("--full", "Print the whole report of a job, not its summary."),
        flag("--script", "Show the job script that Slurm stored, and check it."),
    ]


def cluster_option() -> click.Option:
    """Return the option that chooses a cluster, as Slurm's own commands name it."""
    return option("-M --clusters cluster", "NAME", "Cluster of the jobs, where there are several.")


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
        raise not_found(job_id, chosen, config)
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
    full: bool,
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
    with _point_to_portal(config), open_jobs(config, own_environment()) as source, _choose_cluster():
        chosen = ChosenJobs(source=source, config=config, choice=choice, wanted=wanted, format=shape, is_full=full)
        render = chosen.find_script() if script else chosen.find(max(limit, len(choice.shown_ids)))
    _write(render, shape, output, color)
    return 0


def _parse_cluster(cluster: str | None, given: dict[str, object]) -> str:
    """Parse the chosen cluster, whose accounting is read then; empty if none was chosen."""
    chosen = parse_cluster(cluster) if cluster else ""
    if chosen and not given.get("accounting_clusters"):
        given["accounting_clusters"] = (chosen,)
    return chosen


@contextmanager
def _point_to_portal(config: Config) -> Iterator[None]:
    """Name the other way to reports where Slurm cannot be read from this host."""
    try:
        yield
    except SourceError as error:
        if config.of(ClientSettings).url is not None:
            raise
        raise SourceError(f"{error}. {_NO_SLURM}") from error


@contextmanager
def _choose_cluster() -> Iterator[None]:
    """Name the option that chooses a cluster where a job ID is that of several jobs."""
    try:
        yield
    except AmbiguousName as error:
        raise ConfigError(f"{error}; choose one with -M, such as -M {error.clusters[0]}") from error


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
        write_text(_fit_terminal(made.decode()))
    else:
        write_bytes(made)


def _fit_terminal(text: str) -> str:
    """Replace the characters of curves where the terminal has none of them."""
    from slurmscope.jobs.render.text import ASCII, BLOCKS

    try:
        BLOCKS.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(str.maketrans(BLOCKS, ASCII))
    return text


FILE_LIMIT_BYTES = 64 << 20
HINT = "make one with slurmscope run --format json --output FILE"


def make_compare_command() -> click.Command:
    shape = click.Option(
        ["--format", "-f"],
        type=click.Choice(["text", "json"]),
        default="text",
        metavar="FORMAT",
        help="text or json. [default: text]",
    )
    files = [click.Argument([name], type=click.Path(path_type=Path), metavar=name.upper()) for name in ("a", "b")]
    return click.Command(
        "compare",
        callback=_compare,
        params=[*files, shape],
        help="Compare two reports side by side. A and B are files that slurmscope run or slurmscope report wrote with "
        "--format json.",
        epilog=format_examples(
            "slurmscope compare laptop.json cluster.json", "slurmscope compare before.json after.json -f json"
        ),
    )


def _compare(*, a: Path, b: Path, format: str) -> int:
    comparison = compare(read_report_file(a), read_report_file(b))
    if format == "json":
        write_bytes(render_comparison_json(comparison) + b"\n")
    else:
        write_text(render_comparison_text(comparison, width=page_width()))
    return 0


def read_report_file(path: Path) -> object:
    """Read a stored report; raise ConfigError with the name of a file that is none."""
    name = escape(str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_LIMIT_BYTES + 1)
        report: object = json.loads(data) if len(data) <= FILE_LIMIT_BYTES else None
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON; {HINT}") from error
    if not is_report(report):
        raise ConfigError(f"{name} is not a report; {HINT}")
    return report
