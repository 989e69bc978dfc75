# SPDX-License-Identifier: Apache-2.0
"""A part of a run is shown with and without scripts, by the access rules of the job, in the viewer's time zone."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from slurmscope.jobs.report import JobReport
from slurmscope.portal.zoom import RunPart, ZoomedReport, Zoomer
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import START, make_two_node_report
from tests.unit.portal.test_zoomer import FineSeries

PART = f"from={START + 600}&to={START + 1200}"


@pytest.fixture
def fine(backend: FakeBackend) -> FineSeries:
    """Let the portal read finer data."""
    series = FineSeries()
    backend.zoomer = Zoomer(series)
    return series


def test_page_links_to_parts_of_the_run(ada: PortalClient) -> None:
    assert "/jobs/4711/zoom" in Page(ada.get("/jobs/4711").text).links


def test_form_and_links_work_without_scripts(ada: PortalClient, fine: FineSeries) -> None:
    answer = ada.get(f"/jobs/4711/zoom?{PART}")
    page = Page(answer.text)

    assert 200 == answer.status_code
    values = {field["name"]: field["value"] for field in page.all("input") if field["name"] in {"from", "to"}}
    # 1,790,000,000 is 14:13:20 UTC on 2026-09-21.
    assert {"from": "2026-09-21 14:23:20", "to": "2026-09-21 14:33:20"} == values
    assert "From (UTC)" in page.text
    assert "A point every 10 s." in page.text
    assert {f"/jobs/4711/zoom?from={START + 750}&to={START + 1050}"} <= set(page.links)
    assert f"/jobs/4711/charts/cpu.svg?{PART}&dark=0" in {image["src"] for image in page.all("img")}
    assert [] == page.open


def test_all_pictures_of_a_part_are_read_once(ada: PortalClient, fine: FineSeries) -> None:
    for address in ("zoom", "charts.json", "charts/cpu.svg", "charts/memory.svg", "charts/cpu.csv"):
        assert 200 == ada.get(f"/jobs/4711/{address}?{PART}").status_code

    assert 4 == len(fine.queries)


def test_script_gets_finer_charts_and_a_note(ada: PortalClient, fine: FineSeries) -> None:
    answer = ada.get(f"/jobs/4711/charts.json?{PART}").json()

    assert {"cpu": True, "memory": True} == {chart["name"]: chart["is_finer"] for chart in answer["charts"]}
    assert 61 == len(answer["charts"][0]["times"])
    assert "A point every 10 s." == answer["note"]


def test_archived_curves_are_cut_and_said_to_be_all_there_is(ada: PortalClient) -> None:
    answer = ada.get(f"/jobs/4711/charts.json?{PART}").json()

    assert {False} == {chart["is_finer"] for chart in answer["charts"]}
    assert "A point every 30 s, as the report keeps them." == answer["note"]
    assert 120.0 == answer["shortest_seconds"]
    times = [time for chart in answer["charts"] for time in chart["times"]]
    assert START + 600 <= min(times) <= max(times) <= START + 1200


def test_heat_maps_show_the_same_part(backend: FakeBackend) -> None:
    backend.archive.save([make_two_node_report()])
    ada = PortalClient(backend.make_app(), "ada")
    page = Page(ada.get(f"/jobs/4740/zoom?{PART}").text)
    answer = ada.get(f"/jobs/4740/charts.json?{PART}").json()

    assert f"/jobs/4740/heat/cpu.svg?{PART}&dark=0" in {image["src"] for image in page.all("img")}
    assert {"cpu"} == set(answer["heat_maps"])
    assert {"left", "right", "top", "bottom", "width", "height"} == set(answer["heat_maps"]["cpu"])
    rows = ada.get(f"/jobs/4740/heat/cpu.json?{PART}").json()["rows"]
    # A column begins where the step of its point begins, which for the first point is before the part.
    assert all(START + 540 <= row["time_seconds"] <= START + 1200 for row in rows)


@pytest.mark.parametrize("address", ["/jobs/4711/zoom", "/jobs/4711/charts.json", "/api/v2/jobs/4711/charts"])
def test_invalid_times_are_refused_with_a_sentence(ada: PortalClient, address: str) -> None:
    answer = ada.get(f"{address}?from=yesterday")

    assert 400 == answer.status_code
    assert "must be a time such as" in answer.text


def test_api_returns_a_part_with_a_step(ada: PortalClient, fine: FineSeries) -> None:
    answer = ada.get(f"/api/v2/jobs/4711/charts?{PART}&step=60").json()

    assert answer["charts"][0]["is_finer"]
    assert {10} == {points for _, _, points in fine.queries}
    assert 422 == ada.get(f"/api/v2/jobs/4711/charts?{PART}&step=-1").status_code


def test_user_beyond_the_limit_gets_an_error(backend: FakeBackend) -> None:
    backend.zoomer = Zoomer(FineSeries(), clock=lambda: 0.0)
    ada = PortalClient(backend.make_app(), "ada")
    codes = [ada.get(f"/jobs/4711/charts.json?from={START + number}").status_code for number in range(25)]

    assert {200, 429} == set(codes)
    assert codes == sorted(codes)


def test_part_is_requested_for_the_viewer(backend: FakeBackend) -> None:
    requested: list[tuple[str, RunPart]] = []

    class WatchedZoomer(Zoomer):
        def zoom(self, user: str, report: JobReport, part: RunPart, points: int = 0) -> ZoomedReport:
            requested.append((user, part))
            return super().zoom(user, report, part, points)

    backend.zoomer = WatchedZoomer(None)
    PortalClient(backend.make_app(), "sue").get(f"/jobs/4711/zoom?{PART}")
    PortalClient(backend.make_app(), "eve").get(f"/jobs/4711/zoom?{PART}")

    assert [("sue", RunPart(START + 600.0, START + 1200.0))] == requested


def texts(image: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(image).iter() if element.tag.endswith("text")]


@pytest.mark.parametrize(
    ("cookie", "site", "day", "mark"),
    [
        ("", "UTC", "2026-09-21, UTC", "14:30"),
        ("", "Europe/Berlin", "2026-09-21, Europe/Berlin", "16:30"),
        ("America/New_York", "Europe/Berlin", "2026-09-21, America/New_York", "10:30"),
        ("Asia/Tokyo", "UTC", "2026-09-21, Asia/Tokyo", "23:30"),
        # 05:45 hours ahead: marks are at full hours there, not of UTC.
        ("Asia/Kathmandu", "UTC", "2026-09-21, Asia/Kathmandu", "20:00"),
        ("../../etc/passwd", "UTC", "2026-09-21, UTC", "14:30"),
        ("Mars/Olympus", "UTC", "2026-09-21, UTC", "14:30"),
        ("Europe", "UTC", "2026-09-21, UTC", "14:30"),
    ],
)
def test_pictures_are_in_the_time_zone_of_the_viewer(
    backend: FakeBackend, cookie: str, site: str, day: str, mark: str
) -> None:
    backend.settings = replace(backend.settings, time_zone=site)
    backend.archive.save([make_two_node_report()])
    ada = PortalClient(backend.make_app(), "ada")
    headers = {"Cookie": f"slurmscope-time-zone={cookie}"} if cookie else {}
    for address in ("/jobs/4711/charts/cpu.svg", "/jobs/4740/heat/cpu.svg"):
        found = texts(ada.get(address, **headers).text)
        assert day in found
        assert mark in found


def test_form_is_in_the_time_zone_of_the_viewer(ada: PortalClient) -> None:
    headers = {"Cookie": "slurmscope-time-zone=Asia/Tokyo"}
    page = Page(ada.get("/jobs/4711/zoom?from=2026-09-21T23:23:20&to=2026-09-21T23:33:20", **headers).text)

    assert "From (Asia/Tokyo)" in page.text
    assert "2026-09-21 23:23:20" in {field.get("value") for field in page.all("input")}
