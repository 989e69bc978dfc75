# SPDX-License-Identifier: Apache-2.0
"""Parts of a run are parsed within its bounds, and links lead to other parts."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.report import MAX_CHART_POINTS
from slurmscope.jobs.series import Measured
from slurmscope.portal.queries import BadQuery
from slurmscope.portal.zoom import (
    MIN_SECONDS,
    RunPart,
    count_points,
    describe_zoom,
    find_shortest,
    make_zoom_view,
    parse_part,
    whole_run,
    zoom_report,
)
from tests.fakes.reports import START, make_record, make_report

REPORT = make_report()
RUN = RunPart(START, START + 7200.0)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("given_texts", "expected"),
    [
        ({}, None),
        ({"from": " ", "to": ""}, None),
        ({"from": str(START + 60), "to": str(START + 120)}, RunPart(START + 60.0, START + 120.0)),
        ({"from": f"{START + 60}.5"}, RunPart(START + 60.5, START + 7200.0)),
        ({"to": str(START + 60)}, RunPart(START, START + 60.0)),
        # 1,790,000,000 is 14:13:20 UTC on 2026-09-21, and 16:13:20 in Berlin (date -d @1790000000).
        ({"from": "2026-09-21T16:14:20"}, RunPart(START + 60.0, START + 7200.0)),
        ({"from": "2026-09-21T14:14:20Z"}, RunPart(START + 60.0, START + 7200.0)),
        ({"from": "2026-09-21 16:20"}, RunPart(START + 400.0, START + 7200.0)),
        # Beyond the run there is nothing to show.
        ({"from": "0", "to": "99999999999"}, RUN),
        ({"from": "0001-01-01T00:00"}, RUN),
    ],
)
def test_period_is_within_the_run(given_texts: dict[str, str], expected: RunPart | None) -> None:
    assert expected == parse_part(given_texts, REPORT, BERLIN)


@pytest.mark.parametrize(
    "given_texts",
    [
        {"from": "yesterday"}, {"from": "1" * 12}, {"to": "-5"}, {"from": "2026-02-31T00:00"}, {"from": "x" * 1000},
        {"to": "0001-01-01T00:00"}, {"from": str(START + 7200)}, {"to": str(START)},
        {"from": str(START + 20), "to": str(START + 10)}, {"from": "١٢٣"},
    ],
)  # fmt: skip
def test_other_periods_are_refused(given_texts: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        parse_part(given_texts, REPORT, UTC)


@given(st.dictionaries(st.sampled_from(["from", "to"]), st.text(max_size=50)))
def test_no_text_crashes_the_parser(given_texts: dict[str, str]) -> None:
    try:
        period = parse_part(given_texts, REPORT, BERLIN)
    except BadQuery:
        return
    assert period is None or period.from_seconds < period.to_seconds


def test_short_period_is_widened() -> None:
    period = parse_part({"from": str(START + 100), "to": str(START + 102)}, REPORT, UTC)

    assert RunPart(START + 96.0, START + 106.0) == period
    assert MIN_SECONDS == period.to_seconds - period.from_seconds


def test_running_job_lasts_until_its_report() -> None:
    running = make_report(make_record(state="RUNNING", end_seconds=None))

    assert RunPart(START, START + 7300.0) == whole_run(running)


def test_pending_job_has_no_part() -> None:
    with pytest.raises(BadQuery, match="not started"):
        whole_run(make_report(make_record(start_seconds=None, end_seconds=None)))


@pytest.mark.parametrize(
    ("step", "expected"), [(0.0, MAX_CHART_POINTS), (1.0, MAX_CHART_POINTS), (60.0, 10), (7200.0, 1)]
)
def test_points_are_bounded(step: float, expected: int) -> None:
    assert expected == count_points(RunPart(START, START + 600.0), step)


def test_links_move_by_half_and_stay_within_the_run() -> None:
    zoomed = zoom_report(REPORT, Measured(), RunPart(START + 600.0, START + 1000.0))
    view = make_zoom_view(zoomed, RUN, BERLIN, "Europe/Berlin")

    assert ("2026-09-21 16:23:20", "2026-09-21 16:30:00") == (view.from_text, view.to_text)
    assert f"from={START + 600}&to={START + 1000}" == view.query
    assert f"from={START + 700}&to={START + 900}" == view.closer
    assert f"from={START + 400}&to={START + 1200}" == view.wider
    assert f"from={START + 400}&to={START + 800}" == view.earlier
    assert f"from={START + 800}&to={START + 1200}" == view.later


def test_whole_run_has_nothing_wider_earlier_or_later() -> None:
    view = make_zoom_view(zoom_report(REPORT, Measured(), RUN), RUN, UTC, "UTC")

    assert ("", "", "") == (view.wider, view.earlier, view.later)


def test_note_says_how_fine_the_charts_are() -> None:
    # 241 points in two hours.
    cut = zoom_report(REPORT, Measured(), RUN)

    assert "A point every 30 s, as the report keeps them." == describe_zoom(cut)
    assert 120.0 == find_shortest(cut)
    lone = zoom_report(REPORT, Measured(), RunPart(START + 600.0, START + 610.0))
    assert "The part has a single point." == describe_zoom(lone)
    failed = zoom_report(REPORT, Measured(), RUN, problem="timed out")
    assert "Finer data could not be read: timed out" == describe_zoom(failed)
