# SPDX-License-Identifier: Apache-2.0
"""The page of the cluster draws its last day where that is recorded."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree as ET

import pytest

from tests.fakes.browser import Page, Visitor
from tests.fakes.portal_desk import JOBS_CHART, FakeDesk


def test_page_draws_the_last_day_with_a_table_and_files(ada: Visitor) -> None:
    page = Page(ada.get("/cluster").text)
    assert [] == page.open
    assert "The last 24 hours" in page.text
    assert "Jobs, 20 of 40 points" in page.text
    assert [("jobs", "img")] == [
        (attrs["data-chart"], attrs["role"]) for attrs in page.all("div") if "data-chart" in attrs
    ]
    assert {"/cluster/charts/jobs.csv", "/cluster/charts/jobs.json"} <= set(page.links)
    scripts = [str(attrs["src"]).partition("?")[0] for attrs in page.all("script")]
    assert all(script.startswith("/static/") for script in scripts)
    assert 2 == len(scripts)


def test_page_without_a_recorder_has_no_empty_box(desk: FakeDesk, ada: Visitor) -> None:
    desk.charts = ()
    page = Page(ada.get("/cluster").text)
    assert "The last 24 hours" not in page.text
    assert [] == page.all("script")
    assert {"charts": []} == ada.get("/cluster/charts.json").json()


def test_script_gets_the_curves(ada: Visitor) -> None:
    (chart,) = ada.get("/cluster/charts.json").json()["charts"]
    assert ("jobs", "count", list(JOBS_CHART.times)) == (chart["name"], chart["unit"], chart["times"])
    assert [None, 1430.0] == chart["lines"][1]["values"][:2]


def test_browser_without_scripts_gets_a_picture(ada: Visitor) -> None:
    (picture,) = [str(attrs["src"]) for attrs in Page(ada.get("/cluster").text).all("img") if attrs["alt"]]
    assert "/cluster/charts/jobs.svg?dark=0" == picture
    assert "{http://www.w3.org/2000/svg}svg" == ET.fromstring(ada.get(picture).content).tag


def test_every_point_is_had_as_a_file(ada: Visitor) -> None:
    rows = list(csv.reader(io.StringIO(ada.get("/cluster/charts/jobs.csv").text)))
    assert ["time_seconds", "running", "waiting"] == rows[0]
    assert (41, "0.0", "") == (len(rows), rows[1][1], rows[1][2])
    assert 39.0 == ada.get("/cluster/charts/jobs.json").json()["rows"][-1]["running"]


@pytest.mark.parametrize("path", ["cores.svg", "cores.csv", "jobs.xlsx"])
def test_what_is_not_drawn_is_not_there(ada: Visitor, path: str) -> None:
    assert 404 == ada.get(f"/cluster/charts/{path}").status_code
