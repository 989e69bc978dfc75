# SPDX-License-Identifier: Apache-2.0
"""The same number has the same colour in every rendering: all of them use one rating."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope import portal
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.contents import Gauge
from slurmscope.jobs.render.html import make_chart_css, render_html
from slurmscope.jobs.render.pdf import _gauges
from slurmscope.jobs.render.svg.elements import DARK, LIGHT, Palette
from slurmscope.jobs.render.text import _RATED, render_text
from slurmscope.jobs.render.verdict import is_fine, no_findings
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.summary import UsedShare
from slurmscope.portal.web.templates import _rate
from tests.fakes.archive import make_row
from tests.fakes.reports import make_record, make_report


def with_cpu(ratio: float, state: str = "COMPLETED") -> JobReport:
    report = make_report(make_record(state=state, end_seconds=None if state == "RUNNING" else 1_790_007_200))
    cpu = report.summary.cpu
    time = replace(cpu.time, used=ratio * (cpu.time.requested or 0.0))
    return replace(report, findings=(), summary=replace(report.summary, cpu=replace(cpu, time=time)))


def cpu_gauge(report: JobReport) -> Gauge:
    return contents.gauges(report)[0]


RATED = [
    (0.1, "COMPLETED", Rating.CRITICAL),
    (0.5, "COMPLETED", Rating.WARNING),
    (0.9, "COMPLETED", Rating.FINE),
    (0.9, "RUNNING", Rating.UNRATED),
]


@pytest.mark.parametrize(("ratio", "state", "expected"), RATED)
def test_every_rendering_has_the_same_colour(ratio: float, state: str, expected: Rating) -> None:
    report = with_cpu(ratio, state)

    assert expected == cpu_gauge(report).rating
    # Tables of the portal: that of the job, and lists.
    row = make_row(report)
    assert [expected.value] * 2 == [_rate(ratio, "cpu", report.summary), _rate(row.cpu_ratio, "cpu", row)]
    bars: dict[str, str] = {gauge["label"]: gauge["bar"] for gauge in _gauges(report)}  # type: ignore[misc]
    for drawn in (bars["CPU"], render_html(report)):
        assert f'fill="{LIGHT.rated(expected)}" class="{expected.value}"' in drawn
    line = next(line for line in render_text(report, use_color=True).splitlines() if line.startswith("  CPU  "))
    assert line.startswith(f"  CPU         [{_RATED[expected]}|")


def test_colours_of_the_terminal_differ() -> None:
    assert len(Rating) == len(set(_RATED.values()))


def css_variables(text: str) -> Iterator[dict[str, str]]:
    """Yield the colours of the light and the dark scheme."""
    for block in re.findall(r":root\s*{([^}]*)}", text)[:2]:
        yield dict(re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{6})", block))


@pytest.mark.parametrize(("index", "palette"), [(0, LIGHT), (1, DARK)])
def test_portal_and_reports_have_the_same_colours(index: int, palette: Palette) -> None:
    colors = list(css_variables((Path(portal.__path__[0]) / "static" / "style.css").read_text("utf-8")))[index]

    assert (palette.fine, palette.neutral) == (colors["high"], colors["neutral"])
    if palette is LIGHT:
        assert (palette.critical, palette.warning) == (colors["critical"], colors["warning"])


def test_dark_documents_recolour_every_rating() -> None:
    css = make_chart_css(DARK)

    assert all(f"rect.{rating.value} {{ fill: {DARK.rated(rating)} }}" in css for rating in Rating)


def test_severity_has_its_colour() -> None:
    assert [LIGHT.critical, LIGHT.warning, LIGHT.info] == [LIGHT.of(severity) for severity in Severity]


def test_running_job_without_findings_is_not_called_fine() -> None:
    running, ended = with_cpu(0.9, "RUNNING"), with_cpu(0.9)

    assert "No findings yet: the job is still running." == no_findings(running)
    assert (False, True) == (is_fine(running), is_fine(ended))
    assert "No findings yet" in render_text(running)


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"])
def test_job_that_did_not_complete_is_not_called_fine(state: str) -> None:
    assert not is_fine(with_cpu(0.9, state))


def test_share_that_is_no_number_is_not_rated() -> None:
    report = make_report()
    summary = replace(report.summary, cpu=replace(report.summary.cpu, time=UsedShare()))

    assert Rating.UNRATED == cpu_gauge(replace(report, summary=summary)).rating
