# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope migrate``: find out what dashboards would lose with a new exporter."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from slurmscope.cli.options import config_file_option, load_config
from slurmscope.cli.output import format_examples, option, wants_color, write_text
from slurmscope.cli.roles import all_collectors, feature_metrics, find_role
from slurmscope.core.log import escape
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import RunningExporter, configure_log
from slurmscope.migrate.check import DEFAULT_TOLERANCE, LostMetric, PageComparison, check_pages, declare, find_roles
from slurmscope.migrate.pages import Page, join_pages, parse_page, read_page

SHOWN_VALUES = 5
SECOND_READING_SECONDS = 1.5
"""A node agent knows how busy a job is after two readings, which are at least a second apart."""

_HELP = """Print what dashboards would lose without the older exporter. The exit code is 1 if they would lose something.

OLD is the URL of the older exporter's metrics page, or a file. Without --against, slurmscope reads Slurm or the jobs of
this node once and compares that. Values that slurmscope corrects on purpose are listed and are no loss."""


def make_migrate_command() -> click.Command:
    examples = (
        "slurmscope migrate check http://controller:9092/metrics",
        "slurmscope migrate check http://n1:9092/metrics --against http://n1:9341",
        "slurmscope migrate check old.prom --against new.prom --format json",
    )
    group = click.Group(
        "migrate",
        help="Compare the metrics of a replaced exporter with those of slurmscope.",
        epilog=format_examples(*examples),
    )
    group.add_command(
        click.Command("check", callback=_check, params=_options(), help=_HELP, epilog=format_examples(*examples))
    )
    return group


def _options() -> list[click.Parameter]:
    tolerance = "Relative difference of values to ignore, such as 0.05."
    return [
        click.Argument(["old"], metavar="OLD"),
        option(
            "--against", "URL|FILE", "Page of slurmscope; repeatable, for the pages of both exporters.", multiple=True
        ),
        option("--tolerance", "RATIO", tolerance, click.FloatRange(0, 1000), default=DEFAULT_TOLERANCE),
        click.Option(["--format"], type=click.Choice(["text", "json"]), default="text", help="Format of the result."),
        config_file_option("Configuration of slurmscope, without --against."),
    ]


def _check(old: str, against: Sequence[str], tolerance: float, format: str, config_file: Path | None) -> int:
    declared = declare((c for role in Role for c in all_collectors(role)), feature_metrics(Role.CLUSTER))
    old_page = read_page(old)
    if against:
        places = tuple(against)
        ours = join_pages(map(read_page, against))
    else:
        roles = find_roles(old_page, declared)
        places = tuple(f"slurmscope {role.value} --once" for role in roles) or ("slurmscope",)
        ours = join_pages(_make_page(role, config_file) for role in roles)
    comparison = check_pages(old_page, ours, declared, tolerance=tolerance)
    lines = _json_lines(old, places, comparison) if format == "json" else _text_lines(old, places, comparison)
    write_text("\n".join(lines))
    return 0 if comparison.is_lossless else 1


def _make_page(role: Role, config_file: Path | None) -> Page:
    """Make the page of an exporter here."""
    given = {"config_file": config_file, "log_level": "error"}
    exporter = find_role(role.value).make_exporter(lambda: load_config(role.value, given))
    config = exporter.load()
    configure_log(config)
    with closing(RunningExporter(exporter, config)) as running:
        page = b"".join(running.make_page())
        if role is Role.NODE:
            time.sleep(SECOND_READING_SECONDS)
            page = b"".join(running.make_page())
        return parse_page(page)


def _text_lines(old: str, places: Sequence[str], comparison: PageComparison) -> Iterator[str]:
    yield (
        f"Compared {comparison.compared} metrics of {escape(old)} with {escape(' and '.join(places))}; "
        f"{comparison.left_out} of other programs were left out."
    )
    if comparison.has_instance:
        yield "The labels job and instance were left out: Prometheus sets them. See docs/migrate/README.md."
    for loss in sorted(comparison.losses, key=lambda loss: not loss.counts):
        yield from _describe(loss)
    counted = len({loss.difference.metric for loss in comparison.losses if loss.counts})
    yield ""
    yield (
        "Nothing would be lost." if not counted else f"{counted} of {comparison.compared} metrics would lose something."
    )


def _describe(loss: LostMetric) -> Iterator[str]:
    """Yield the lines about one difference; names and values come from the pages."""
    difference, use_color = loss.difference, wants_color()
    mark = click.style("lost     ", fg="red") if loss.counts else click.style("corrected", fg="yellow")
    mark = mark if use_color else click.unstyle(mark)
    shown = ", ".join(f"'{escape(value, 80)}'" for value in difference.values[:SHOWN_VALUES])
    rest = len(difference.values) - SHOWN_VALUES
    more = f": {shown}{f' and {rest:,} more' if rest > 0 else ''}" if shown else ""
    yield f"{mark}  {escape(difference.metric, 200)} {escape(difference.message, 300)}{more}"
    if loss.remedy:
        yield f"           {escape(loss.remedy, 300)}"
    if loss.documented:
        yield f"           {loss.page}: {loss.documented}"


def _json_lines(old: str, places: Sequence[str], comparison: PageComparison) -> Iterator[str]:
    yield json.dumps(
        {
            "old": old,
            "against": list(places),
            "compared": comparison.compared,
            "left_out": comparison.left_out,
            "lossless": comparison.is_lossless,
            "differences": [_as_json(loss) for loss in comparison.losses],
        },
        indent=2,
    )


def _as_json(loss: LostMetric) -> dict[str, object]:
    difference = loss.difference
    return {
        "kind": difference.kind.value,
        "metric": difference.metric,
        "label": difference.label,
        "renamed_to": difference.renamed_to,
        "values": list(difference.values),
        "factor": difference.factor,
        "message": difference.message,
        "is_loss": loss.counts,
        "remedy": loss.remedy,
        "documented": loss.documented,
        "page": loss.page,
    }
