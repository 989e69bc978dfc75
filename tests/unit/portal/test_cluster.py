# SPDX-License-Identifier: Apache-2.0
"""The cluster page shows charts of the last 24 hours if they are recorded."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from slurmscope.portal.cluster_now import QueueRow
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import JOBS_CHART, FakeBackend


def test_page_has_charts_with_a_table_and_files(ada: PortalClient) -> None:
    page = Page(ada.get("/cluster").text)
    assert [] == page.open
    assert "Last 24 hours" in page.text
    assert "Jobs, 20 of 40 points" in page.text
    assert [("jobs", "img")] == [
        (attrs["data-chart"], attrs["role"]) for attrs in page.all("div") if "data-chart" in attrs
    ]
    assert {"/cluster/charts/jobs.csv", "/cluster/charts/jobs.json"} <= set(page.links)
    scripts = [str(attrs["src"]).partition("?")[0] for attrs in page.all("script")]
    assert all(script.startswith("/static/") for script in scripts)
    assert {"charts.js", "htmx-2.0.11.min.js", "uplot-1.6.32.min.js"} <= {name.rpartition("/")[2] for name in scripts}


def test_page_without_a_recorder_has_no_charts(backend: FakeBackend, ada: PortalClient) -> None:
    backend.charts = ()
    page = Page(ada.get("/cluster").text)
    assert "Last 24 hours" not in page.text
    assert not any("charts" in str(attrs["src"]) or "uplot" in str(attrs["src"]) for attrs in page.all("script"))
    assert [] == ada.get("/cluster/charts.json").json()["charts"]


def test_nodes_and_partitions_are_links(backend: FakeBackend) -> None:
    page = Page(PortalClient(backend.make_app(), "sue").get("/cluster").text)

    assert {"/nodes/n17", "/jobs?partition=batch", "/jobs?partition=gpu"} <= set(page.links)


def test_reasons_of_a_single_partition_are_shown_once(backend: FakeBackend, ada: PortalClient) -> None:
    def has_reasons(*partitions: str) -> bool:
        queue = tuple(QueueRow(partition=name, reason="Priority", jobs=1, cpus=1, gpus=0) for name in partitions)
        backend.cluster = replace(backend.cluster, queue=queue)
        return "Pending jobs by reason" in ada.get("/cluster").text

    assert (True, False, True) == (has_reasons(), has_reasons("batch"), has_reasons("batch", "gpu"))


def test_sums_of_partitions_that_exceed_the_pending_jobs_are_explained(backend: FakeBackend, ada: PortalClient) -> None:
    def is_explained(jobs: int) -> bool:
        queue = tuple(QueueRow(partition=name, reason="Priority", jobs=jobs, cpus=1, gpus=0) for name in ("a", "b"))
        backend.cluster = replace(backend.cluster, queue=queue, jobs_by_state={"PENDING": 4})
        return "counts in each of them" in ada.get("/cluster").text

    assert (False, True) == (is_explained(2), is_explained(3))


def test_script_gets_the_charts(ada: PortalClient) -> None:
    (chart,) = ada.get("/cluster/charts.json").json()["charts"]
    assert ("jobs", "count", list(JOBS_CHART.times)) == (chart["name"], chart["unit"], chart["times"])
    assert [None, 1430.0] == chart["lines"][1]["values"][:2]


def test_browser_without_scripts_gets_an_image(ada: PortalClient) -> None:
    (image,) = [str(attrs["src"]) for attrs in Page(ada.get("/cluster").text).all("img") if attrs["alt"]]
    assert "/cluster/charts/jobs.svg?dark=0" == image
    assert "{http://www.w3.org/2000/svg}svg" == ET.fromstring(ada.get(image).content).tag


def test_all_points_are_in_the_file(ada: PortalClient) -> None:
    rows = list(csv.reader(io.StringIO(ada.get("/cluster/charts/jobs.csv").text)))
    assert ["time_seconds", "running", "pending", "time"] == rows[0]
    assert (41, "0.0", "") == (len(rows), rows[1][1], rows[1][2])
    assert 39.0 == ada.get("/cluster/charts/jobs.json").json()["rows"][-1]["running"]


@pytest.mark.parametrize("path", ["cores.svg", "cores.csv", "jobs.xlsx"])
def test_unknown_chart_is_not_found(ada: PortalClient, path: str) -> None:
    assert 404 == ada.get(f"/cluster/charts/{path}").status_code


def test_problem_is_shown_once(backend: FakeBackend, ada: PortalClient) -> None:
    backend.failures = ("Slurm jobs cannot be read: timeout",)
    backend.cluster = replace(backend.cluster, problems=backend.failures)
    assert 1 == ada.get("/cluster").text.count("Slurm jobs cannot be read")
